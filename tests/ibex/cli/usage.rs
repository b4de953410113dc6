//! How the command line ends: codes, closed pipes.

use std::process::Stdio;

use super::Ibex;

#[test]
fn a_wrong_command_line_ends_with_two() {
    let ibex = Ibex::new();
    for args in [
        &["frobnicate"][..],
        &[],
        &["memory", "import"],
        &["preview"],
        &["preview", "a", "--file", "b"],
        &["demo", "--listen", "nowhere"],
        &["demo", "--config", "ibex.toml"],
        &["token", "create", "--permission", "Everything"],
    ] {
        ibex.fails(args, 2);
    }
    assert!(ibex.ok(&["--version"]).starts_with("ibex "));
    assert!(
        std::fs::read_dir(ibex.folder.path())
            .unwrap()
            .next()
            .is_none(),
        "nothing was created"
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let ibex = Ibex::new();
    ibex.ok(&["init"]);
    for args in [
        &["token", "list"][..],
        &["token", "list", "--json"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = ibex
            .command(args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && !stderr.contains("output"),
            "{args:?}: {stderr}"
        );
    }
}
