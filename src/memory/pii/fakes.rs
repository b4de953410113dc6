//! Invented secrets for the corpus, which names them in double braces. They are joined from parts
//! so that no file contains one in full.

/// Names with the parts of the secrets.
static PARTS: &[(&str, &[&str])] = &[
    (
        "sk-old",
        &["sk", "-", "Fake8hXq2LmN4pRs6TuV8wXy0Zab1Cde3Fgh5Ijk7Lmn9Op"],
    ),
    (
        "sk-proj",
        &[
            "sk-",
            "proj-",
            "fAKe_8hXq2LmN4pRs6TuV8-wXy0Zab1Cde3Fgh5Ijk7",
        ],
    ),
    (
        "sk-ant",
        &[
            "sk-",
            "ant-",
            "api03-fAKe8hXq2LmN4pRs6TuV8wXy0Zab1Cde3Fgh5-AA",
        ],
    ),
    ("akia", &["AK", "IA", "FAKE7Q2W4E6R8T0Y"]),
    ("asia", &["AS", "IA", "FAKE1Z3X5C7V9B2N"]),
    (
        "aws-secret",
        &["fAKe/8hXq2LmN4pRs6Tu", "V8wXy0Zab1Cde3Fgh5Ij"],
    ),
    ("ghp", &["gh", "p_", "fAKe8hXq2LmN4pRs6TuV8wXy0Zab1Cde3Fgh"]),
    ("gho", &["gh", "o_", "fAKe1hXq2LmN4pRs6TuV8wXy0Zab1Cde3Fgh"]),
    (
        "ghpat",
        &[
            "github",
            "_pat_",
            "11FAKE0Y8hXq2LmN4pRs6_TuV8wXy0Zab1Cde3Fgh5Ijk7Lmn9",
        ],
    ),
    ("glpat", &["gl", "pat-", "fAKe8hXq2LmN4pRs6TuV"]),
    ("xoxb", &["xo", "xb-", "123456789012-fAKe8hXq2LmN4pRs"]),
    (
        "slackhook",
        &["T0FAKE123", "/B0FAKE456/", "fAKe8hXq2LmN4pRs6TuV8wXy"],
    ),
    ("sk-live", &["sk", "_live_", "fAKe8hXq2LmN4pRs6TuV8wXy"]),
    ("rk-live", &["rk", "_live_", "fAKe0hXq2LmN4pRs6TuV8wXy"]),
    ("whsec", &["wh", "sec_", "fAKe8hXq2LmN4pRs6TuV8wXy0Zab1Cde"]),
    ("aiza", &["AI", "za", "SyfAKe8hXq2LmN4pRs6TuV8wXy0Zab1Cde3"]),
    (
        "sg",
        &[
            "S",
            "G.",
            "fAKe8hXq2LmN4pRs6TuV8w.",
            "fAKe8hXq2LmN4pRs6TuV8wXy0Zab1Cde3Fgh5Ijk7Lm",
        ],
    ),
    ("twilio-ac", &["A", "C", "0fa4e123456789abcdef0123456789ab"]),
    ("twilio-sk", &["S", "K", "1fa4e123456789abcdef0123456789ab"]),
    ("npm", &["np", "m_", "fAKe8hXq2LmN4pRs6TuV8wXy0Zab1Cde3Fgh"]),
    (
        "pypi",
        &[
            "py",
            "pi-",
            "AgEIfAKe8hXq2LmN4pRs6TuV8wXy0Zab1Cde3Fgh5Ijk7Lmn9OpQ",
        ],
    ),
    ("hf", &["h", "f_", "fAKeXhXqJLmNQpRsWTuVYwXyRZabTCdeUF1"]),
    (
        "dop",
        &[
            "dop",
            "_v1_",
            "fa4e0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab",
        ],
    ),
    (
        "jwt",
        &[
            "ey",
            "JhbGciOiJIUzI1NiJ9",
            ".ey",
            "JzdWIiOiJmYWtlIiwibiI6MX0",
            ".fAKe8hXq2LmN4pRs6TuV8wXy0Zab1Cde3Fgh5Ijk7",
        ],
    ),
    (
        "ibex",
        &[
            "ibex",
            "_pat_",
            "0198fa4e-1234-7abc-8def-0123456789ab_",
            "fAKe8hXq2LmN4pRs6TuV8-wXy0Zab1Cde_3Fgh5Ijk7",
        ],
    ),
    (
        "hf-letters",
        &["h", "f_", "fAKeXhXqJLmNQpRsWTuVYwXyRZabTCdeUF"],
    ),
    (
        "ghp-letters",
        &["gh", "p_", "fAKeXhXqJLmNQpRsWTuVYwXyRZabTCdeUFgh"],
    ),
    (
        "npm-letters",
        &["np", "m_", "fakexhxqjlmnqprswtuvywxyrzabtcdeufgh"],
    ),
    ("glpat-letters", &["gl", "pat-", "fAKeXhXqJLmNQpRsWTuV"]),
    (
        "sk-letters",
        &[
            "sk",
            "-",
            "fAKeXhXqJLmNQpRsWTuVYwXyRZabTCdeUFghIjkLMnoPqRsT",
        ],
    ),
    (
        "sk-split",
        &[
            "s\u{34f}k-",
            "proj-",
            "fAKe_8hXq2LmN4pRs6TuV8-wXy0Zab1Cde3Fgh5Ijk7",
        ],
    ),
    ("generic20", &["fAKe8hXq2L", "mN4pRs6TuV"]),
    ("generic32", &["fAKe8hXq2LmN4pRs", "6TuV8wXy0Zab1Cde"]),
    (
        "generic40",
        &["fAKe8hXq2LmN4pRs6TuV", "8wXy0Zab1Cde3Fgh5Ijk"],
    ),
    (
        "hex64",
        &[
            "fa4e0123456789abcdef0123456789ab",
            "cdef0123456789abcdef0123456789ab",
        ],
    ),
    (
        "telegram",
        &["123456789", ":A", "AfAKe8hXq2LmN4pRs6TuV8wXy0Zab1Cde"],
    ),
    (
        "glsa",
        &["gl", "sa_", "fAKe8hXq2LmN4pRs6TuV8wXy0Zab1Cde_1a2b3c4d"],
    ),
    (
        "lin",
        &["lin", "_api_", "fAKe8hXq2LmN4pRs6TuV8wXy0Zab1Cde3Fgh5Ijk"],
    ),
    (
        "pem-ec",
        &[
            "-----BEGIN EC PRI",
            "VATE KEY-----\n",
            BODY,
            "\n-----END EC PRI",
            "VATE KEY-----",
        ],
    ),
    (
        "pem",
        &[
            "-----BEGIN PRI",
            "VATE KEY-----\n",
            BODY,
            "\n-----END PRI",
            "VATE KEY-----",
        ],
    ),
];

/// The body of a key.
const BODY: &str = "MIIEpAIBAAKCAQEA7fakefakefake0123456789abcdefghijklmnopqrstuvwxyzABC\n\
    DEFGHIJKLMNOPQRSTUVWXYZ0123456789+/fakefakefakefakefakefake0123456=";

/// Names and secrets.
pub(super) fn all() -> Vec<(&'static str, String)> {
    PARTS
        .iter()
        .map(|(name, parts)| (*name, parts.concat()))
        .collect()
}
