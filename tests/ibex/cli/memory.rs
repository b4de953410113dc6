//! `ibex memory add`, `ibex memory search` and `ibex preview`.

use super::Ibex;

const OWLS: &str = "Zora Winterfeld keeps seven owls in the old mill.";
const QUESTION: &str = "Where does Zora Winterfeld keep her owls?";

#[test]
fn a_memory_is_added_found_and_not_added_twice() {
    let ibex = Ibex::new();
    ibex.ok(&["init"]);
    let added = ibex.json(&[
        "memory", "add", OWLS, "--label", "episodic", "--label", "factual", "--pinned",
    ]);
    assert_eq!(
        (&added["pinned"], &added["source"]["kind"]),
        (&true.into(), &"cli".into())
    );
    assert_eq!(added["labels"].as_array().unwrap().len(), 2);
    ibex.ok(&["memory", "add", "Ann rows on Sundays.", "--user", "ann"]);

    let again = ibex.fails(
        &[
            "memory",
            "add",
            " zora winterfeld KEEPS seven owls in the old mill.",
        ],
        1,
    );
    assert!(
        again.contains("the same content") && again.contains(added["id"].as_str().unwrap()),
        "{again}"
    );
    let empty = ibex.fails(&["memory", "add", " ", "--confidence", "1.5"], 1);
    assert!(
        empty.contains("content must not be empty") && empty.contains("confidence must be"),
        "{empty}"
    );

    let found = ibex.json(&["memory", "search", QUESTION]);
    assert_eq!(
        (&found[0]["id"], &found[0]["rank"]),
        (&added["id"], &1.into())
    );
    let table = ibex.ok(&["memory", "search", QUESTION]);
    assert!(table.contains("SCORE") && table.contains(OWLS), "{table}");
    let rowing = ["memory", "search", "When does Ann row?"];
    assert!(!ibex.ok(&rowing).contains("Sundays"));
    assert!(
        ibex.ok(&[&rowing[..], &["--user", "ann"]].concat())
            .contains("Sundays")
    );
    ibex.fails(&["memory", "search", " "], 2);
}

#[test]
fn what_the_refinery_did_is_told() {
    let ibex = Ibex::new();
    ibex.ok(&["init"]);
    ibex.ok(&["memory", "add", "Mara lives in Porto."]);
    let porto = ibex.json(&["memory", "list"])["memories"][0]["id"].clone();
    let said = ibex.ok(&["memory", "add", "Mara lives in Lisbon."]);
    let replaced = format!("it replaces {}", porto.as_str().unwrap());
    assert!(said.contains(&replaced), "{said}");
    let said = ibex.ok(&["memory", "add", "Write to desk@example.com."]);
    assert!(said.contains("1 email_address taken out"), "{said}");
    let past = ibex.ok(&["memory", "list", "--status", "superseded"]);
    assert!(past.contains("Porto") && !past.contains("Lisbon"), "{past}");
    ibex.fails(&["memory", "list", "--status", "forgotten"], 2);
}

#[test]
fn agents_are_told_to_capture() {
    let ibex = Ibex::new();
    ibex.ok(&["init"]);
    assert_eq!(ibex.json(&["agent", "list"])[0]["capture"], "off");
    ibex.ok(&["agent", "set-capture", "user"]);
    assert_eq!(ibex.json(&["agent", "list"])[0]["capture"], "user");
    ibex.fails(&["agent", "set-capture", "all"], 2);
}

#[test]
fn a_preview_shows_messages_and_plan_without_a_provider() {
    let ibex = Ibex::new();
    ibex.ok(&["init"]);
    ibex.ok(&["memory", "add", OWLS]);
    ibex.ok(&["memory", "add", "The ferry to Holm is painted green."]);
    ibex.write("directive.txt", "Be brief.");
    ibex.ok(&["directive", "add", "directive.txt", "--promote"]);

    let text = ibex.ok(&["preview", QUESTION]);
    for part in [
        "Be brief.",
        OWLS,
        "[user]\nWhere does",
        "CONTEXT  full (L0)",
        "128000 tokens of window",
        "packed",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let shown = ibex.json(&["preview", QUESTION]);
    let memories = shown["plan"]["memories"].as_array().unwrap();
    let packed = memories.iter().filter(|m| m["decision"] == "packed");
    // The session opens with both, so neither is recalled once more.
    assert_eq!(packed.filter(|m| m["region"] == "snapshot").count(), 2);
    assert_eq!(shown["messages"][1]["content"], QUESTION);

    let request = format!(
        r#"{{"model": "local-model", "messages": [{{"role": "system", "content": "Own."}}, {{"role": "user", "content": "{QUESTION}"}}]}}"#
    );
    ibex.write("request.json", &request);
    let of_file = ibex.json(&["preview", "--file", "request.json"]);
    assert_eq!(of_file["plan"]["budget"]["context_window"], 32_768);
    let of_stdin = ibex.run_with(&["preview", "--file", "-", "--json"], &[], &request);
    assert!(of_stdin.status.success());
    // A model with its own entry has its own window, though nobody serves it.
    ibex.write(
        "ibex.toml",
        "[[models]]\npattern = \"local-*\"\ncontext_window = 4096\n",
    );
    let configured = ibex.json(&["preview", "--file", "request.json"]);
    assert_eq!(configured["plan"]["budget"]["context_window"], 4_096);

    ibex.write(
        "broken.json",
        r#"{"model": "m", "messages": [{"content": "x"}]}"#,
    );
    let broken = ibex.fails(&["preview", "--file", "broken.json"], 1);
    assert!(broken.contains("messages[0]"), "{broken}");
}
