//! `ibex check-config`: each mistake that starts a server with other rules than meant is a fault that names its key (case OPS-01).

use super::Ibex;

#[test]
fn a_good_configuration_passes() {
    let ibex = Ibex::new();
    ibex.ok(&["check-config"]);
    ibex.write("ibex.toml", "[rate_limit]\ndefault_rpm = 40\n");
    ibex.ok(&["check-config"]);
}

#[test]
fn every_mistake_is_a_fault_that_names_its_key() {
    for (toml, named) in [
        ("auth_tokenz = \"x\"\n", "auth_tokenz"),
        ("[rate_limit]\nrmp = 5\n", "rate_limit.rmp"),
        (
            "[server.rate_limit]\ndefault_rpm = 5\n",
            "server.rate_limit",
        ),
        (
            "[rate_limit]\ndefault_rpm = 1\ndefault_rpm = 2\n",
            "default_rpm",
        ),
        ("[context]\ndeadline_ms = \"40ms\"\n", "context.deadline_ms"),
        ("[context]\ndeadline_ms = -40\n", "context.deadline_ms"),
        ("[[models]]\npattern = false\n", "models[0].pattern"),
        (
            "[[auth.issuers]]\nissuer = \"https://id.test\"\naudiences = [\"a\"]\n[[auth.issuers.keys]]\nkid = \"k\"\nalgorithm = \"HS256\"\nfile = \"missing.key\"\n",
            "auth.issuers[0].keys[0].file",
        ),
    ] {
        let ibex = Ibex::new();
        ibex.write("ibex.toml", toml);
        let verdict = ibex.fails(&["check-config"], 1);
        assert!(verdict.contains(named), "{named}: {verdict}");
        assert_eq!(ibex.fails(&["serve"], 1), verdict, "one verdict for both");
    }
}

#[test]
fn wrong_numbers_in_the_environment_are_named_by_their_variable() {
    let ibex = Ibex::new();
    for value in ["-1", "40ms", "many"] {
        let output = ibex.run_with(
            &["check-config"],
            &[("IBEX_CONTEXT__HOT_TIMEOUT_MS", value)],
            "",
        );
        assert_eq!(output.status.code(), Some(1), "{value}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("IBEX_CONTEXT__HOT_TIMEOUT_MS"),
            "{value}"
        );
    }
}
