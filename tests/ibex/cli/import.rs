//! `ibex memory import`.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::Ibex;
use super::process::Running;

fn lines(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, i| {
        writeln!(
            text,
            "{{\"content\": \"Crate {i} stands in row {}.\"}}",
            i % 17
        )
        .unwrap();
        text
    })
}

/// The files that keep where imports stand.
fn standings(ibex: &Ibex) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(ibex.folder.path().join("ibex-data")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("import-") && name.ends_with(".json")
    });
    paths
}

#[test]
fn an_import_counts_duplicates_and_names_the_lines_it_cannot_take() {
    let ibex = Ibex::new();
    ibex.ok(&["init"]);
    ibex.write(
        "in.jsonl",
        concat!(
            "{\"content\": \"Zora keeps owls.\", \"category\": \"factual\"}\n",
            "not json\n",
            "\n",
            "{\"content\": \" zora KEEPS owls. \"}\n",
            "{\"content\": \"Ann rows.\", \"user_id\": \"ann\"}\n",
            "{\"content\": \"\"}\n",
            "[1]\n",
            "{\"content\": \"Tobin bakes.\"}",
        ),
    );
    let output = ibex.run_with(
        &["memory", "import", "in.jsonl", "--user", "ann", "--json"],
        &[],
        "",
    );
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        summary,
        serde_json::json!({"imported": 2, "duplicates": 1, "failed": 4, "lines": 8, "finished": true})
    );
    for line in [
        "line 2: is not valid JSON",
        "line 5: user_id is not a field of a memory; --user",
        "line 6: content must not be empty",
        "line 7: memory must be a JSON object",
        "4 of 7 lines",
    ] {
        assert!(stderr.contains(line), "{line}: {stderr}");
    }
    let of_ann = ibex.json(&["memory", "list", "--user", "ann"]);
    assert_eq!(of_ann["memories"].as_array().unwrap().len(), 2);
    let of_all = ibex.json(&["memory", "list"]);
    assert_eq!(of_all["memories"].as_array().unwrap().len(), 0);
    assert!(standings(&ibex).is_empty(), "a finished import is over");
}

#[test]
fn of_many_faulty_lines_the_first_are_told() {
    let ibex = Ibex::new();
    ibex.ok(&["init"]);
    ibex.write("in.jsonl", &"oops\n".repeat(30));
    let stderr = ibex.fails(&["memory", "import", "in.jsonl", "--batch", "7"], 1);
    let told = stderr.lines().filter(|l| l.contains("is not valid JSON"));
    assert_eq!(told.count(), 20, "{stderr}");
    assert!(stderr.contains("30 of 30 lines"), "{stderr}");
}

/// Starts an import of `count` lines, one at a time, and returns once its first standing is kept.
fn begun(ibex: &Ibex, count: usize) -> Running {
    ibex.ok(&["init"]);
    ibex.write("in.jsonl", &lines(count));
    let args = ["memory", "import", "in.jsonl", "--batch", "1"];
    let mut import = Running::start(&mut ibex.command(&args));
    while standings(ibex).is_empty() {
        assert!(!import.has_ended(), "it ended: {:?}", import.stderr.rest());
        std::thread::yield_now();
    }
    import
}

#[test]
fn a_killed_import_goes_on_where_it_stopped() {
    const COUNT: usize = 1_500;
    let ibex = Ibex::new();
    let mut import = begun(&ibex, COUNT);
    import.signal("KILL");
    assert!(!import.wait().success());
    assert_eq!(standings(&ibex).len(), 1, "killed before its end");

    let output = ibex.run_with(&["memory", "import", "in.jsonl", "--json"], &[], "");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("going on after line "), "{stderr}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // What was being written when the kill came may be there without being counted.
    let duplicates = summary["duplicates"].as_u64().unwrap();
    assert!(duplicates <= 1, "{summary}");
    assert_eq!(
        summary["imported"].as_u64().unwrap() + duplicates,
        COUNT as u64
    );
    let all = ibex.json(&["memory", "list", "--limit", "5000"]);
    assert_eq!(all["memories"].as_array().unwrap().len(), COUNT);

    let again = ibex.json(&["memory", "import", "in.jsonl"]);
    assert_eq!(again["duplicates"], COUNT);
}

#[test]
fn a_stopped_import_says_how_to_go_on_and_may_start_over() {
    const COUNT: usize = 1_500;
    let ibex = Ibex::new();
    let mut import = begun(&ibex, COUNT);
    import.signal("INT");
    assert_eq!(import.wait().code(), Some(1));
    let stderr = import.stderr.rest().join("\n");
    assert!(
        stderr.contains("stopped after line ") && stderr.contains("goes on from there"),
        "{stderr}"
    );
    let over = ["memory", "import", "in.jsonl", "--resume", "false"];
    let output = ibex.run_with(&[&over[..], &["--json"]].concat(), &[], "");
    assert!(output.status.success());
    assert!(!String::from_utf8_lossy(&output.stderr).contains("going on"));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(summary["duplicates"].as_u64().unwrap() >= 1, "{summary}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let ibex = Ibex::new();
    ibex.ok(&["init"]);
    let missing = ibex.fails(&["memory", "import", "missing.jsonl"], 1);
    assert!(
        missing.contains("missing.jsonl cannot be read"),
        "{missing}"
    );
    let folder = ibex.fails(&["memory", "import", "."], 1);
    assert!(folder.contains("not a regular file"), "{folder}");
}
