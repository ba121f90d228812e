"""Secrets in what plugins log and print."""

from arkdev.runs.masking import masked_output, masked_text, usable_secrets

PEM = "-----BEGIN KEY-----\nMIIEvAIBADANBg\nab+cd/ef==\n-----END KEY-----\n"


def test_each_line_of_a_secret_of_several_lines_is_masked():
    secrets = usable_secrets([PEM])
    assert masked_text("ab+cd/ef==", secrets=secrets) == "***"
    for shown in (PEM, repr(PEM), PEM.replace("\n", "\r\n")):
        for line in PEM.splitlines():
            assert line not in masked_text(f"key: {shown}", secrets=secrets)


def test_plain_words_and_short_lines_of_such_a_secret_are_kept():
    secrets = usable_secrets(['{\n"a": 1\nsettings\n}\n'])
    assert masked_text("settings {}", secrets=secrets) == "settings {}"


def test_users_and_passwords_in_urls_are_masked():
    text = "connecting to postgres://me:pw@db:5432/x, https://a.b/c@d"
    expected = "connecting to postgres://***@db:5432/x, https://a.b/c@d"
    assert masked_output(text, secrets=()) == expected
