//! `ibex export` and `ibex import`: a whole store moves, and nothing but the whole of it counts as moved.

use super::Ibex;
use crate::support::services::fresh_database;

const OWLS: &str = "Zora Winterfeld keeps seven owls in the old mill.";

/// A store with an organisation, an agent, tokens, directives and memories, one of them forgotten; and its export.
fn exported() -> (Ibex, String) {
    let ibex = Ibex::new();
    let init = ibex.json(&["init"]);
    ibex.write("directive.txt", "Answer briefly.");
    ibex.ok(&["directive", "add", "directive.txt", "--promote"]);
    ibex.ok(&["memory", "add", OWLS, "--pinned"]);
    ibex.ok(&["memory", "add", "Ann rows on Sundays.", "--user", "ann"]);
    let gone = ibex.json(&["memory", "add", "The safe opens with lantern."]);
    ibex.ok(&["memory", "forget", gone["id"].as_str().unwrap()]);
    ibex.ok(&["export", "all.jsonl"]);
    (ibex, init["token"].as_str().unwrap().to_owned())
}

/// An empty store with the keys and the export of another one.
fn target(of: &Ibex, edit: impl FnOnce(String) -> String) -> Ibex {
    let target = Ibex::new();
    let keys = std::fs::read_to_string(of.folder.path().join("ibex-data/ibex.db.keys")).unwrap();
    std::fs::create_dir(target.folder.path().join("ibex-data")).unwrap();
    target.write("ibex-data/ibex.db.keys", &keys);
    let export = std::fs::read_to_string(of.folder.path().join("all.jsonl")).unwrap();
    target.write("all.jsonl", &edit(export));
    target
}

#[test]
fn a_store_moves_with_its_tokens_directives_and_memories() {
    let (from, token) = exported();
    let to = target(&from, |export| export);
    let told = to.json(&["import", "all.jsonl"]);
    let rows = |table: &str| {
        let mut all = told.as_array().unwrap().iter();
        all.find(|row| row["table"] == table)
            .map(|row| row["rows"].clone())
    };
    assert_eq!(
        rows("memories"),
        Some(3.into()),
        "the tombstone is one of them"
    );
    assert_eq!(
        (rows("orgs"), rows("tokens")),
        (Some(1.into()), Some(1.into()))
    );
    assert_eq!(rows("directives"), Some(1.into()));
    let found = to.json(&[
        "memory",
        "search",
        "Where does Zora Winterfeld keep her owls?",
    ]);
    assert_eq!(found[0]["content"], OWLS);
    assert_eq!(
        to.json(&["memory", "list", "--user", "ann"]),
        from.json(&["memory", "list", "--user", "ann"])
    );
    to.ok(&["token", "revoke", &token]);
    // What was forgotten is in neither.
    let export = std::fs::read_to_string(from.folder.path().join("all.jsonl")).unwrap();
    assert!(export.contains("seven owls") && !export.contains("lantern"));
    to.fails(
        &["memory", "add", "Ann rows on Sundays.", "--user", "ann"],
        1,
    );
    to.ok(&["memory", "add", "The mill stands by the weir."]);
}

#[test]
fn an_export_is_private_and_replaces_no_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let (from, _) = exported();
    let file = from.folder.path().join("all.jsonl");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(
        from.fails(&["export", "all.jsonl"], 1)
            .contains("there is such a file")
    );
    from.ok(&["export", "small.jsonl.gz"]);
    let to = target(&from, |_| String::new());
    std::fs::copy(
        from.folder.path().join("small.jsonl.gz"),
        to.folder.path().join("small.jsonl.gz"),
    )
    .unwrap();
    to.ok(&["import", "small.jsonl.gz"]);
}

#[test]
fn an_import_that_broke_off_goes_on_and_is_not_over_before_its_end() {
    let (from, _) = exported();
    let whole = std::fs::read_to_string(from.folder.path().join("all.jsonl")).unwrap();
    let half: String = whole.split_inclusive('\n').take(4).collect();
    let to = target(&from, |_| half);
    let told = to.fails(&["import", "all.jsonl"], 1);
    assert!(told.contains("not complete"), "{told}");
    to.write("all.jsonl", &whole);
    let first = to.json(&["import", "all.jsonl"]);
    // Again: nothing is stored twice, and all of it is looked at once more.
    assert_eq!(to.json(&["import", "all.jsonl"]), first);
    to.ok(&["memory", "add", "The mill stands by the weir."]);
    let changed = to.fails(&["import", "all.jsonl"], 1);
    assert!(
        changed.contains("memories") && changed.contains("written since"),
        "{changed}"
    );
}

#[test]
fn what_does_not_arrive_as_it_was_is_told() {
    let (from, _) = exported();
    let to = target(&from, |export| export.replace("seven owls", "eight owls"));
    let told = to.fails(&["import", "all.jsonl"], 1);
    assert!(
        told.contains("not what was exported, in: memories"),
        "{told}"
    );
    let damaged = target(&from, |export| {
        export.replace("\"rows\":[[", "\"rows\":[[7,")
    });
    let told = damaged.fails(&["import", "all.jsonl"], 1);
    assert!(told.contains("line 2: a row is damaged"), "{told}");
    let other = target(&from, |_| "{}\n".to_owned());
    assert!(other.fails(&["import", "all.jsonl"], 1).contains("line 1"));
}

#[test]
fn an_import_fills_empty_stores_under_the_same_keys_only() {
    let (from, _) = exported();
    let used = target(&from, |export| export);
    used.ok(&["init"]);
    assert!(
        used.fails(&["import", "all.jsonl"], 1)
            .contains("not empty")
    );
    let strange = Ibex::new();
    std::fs::copy(
        from.folder.path().join("all.jsonl"),
        strange.folder.path().join("all.jsonl"),
    )
    .unwrap();
    let told = strange.fails(&["import", "all.jsonl"], 1);
    assert!(
        told.contains("other keys") && told.contains("--other-keys"),
        "{told}"
    );
    strange.ok(&["import", "all.jsonl", "--other-keys"]);
}

#[test]
fn a_store_moves_to_a_database_and_back() {
    let (from, token) = exported();
    let to = target(&from, |export| export);
    let database = fresh_database();
    let keys = std::fs::read_to_string(to.folder.path().join("ibex-data/ibex.db.keys")).unwrap();
    let keys: serde_json::Value = serde_json::from_str(&keys).unwrap();
    let url = [
        ("IBEX_POSTGRES__URL", database.url()),
        (
            "IBEX_KEYS__TOKEN_DIGEST",
            keys["token_digest"].as_str().unwrap(),
        ),
    ];
    let over = |args: &[&str]| {
        let output = to.run_with(args, &url, "");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {told}");
        String::from_utf8(output.stdout).unwrap()
    };
    let refused = to.run_with(&["import", "all.jsonl"], &url, "");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && told.contains("ibex migrate"),
        "{told}"
    );
    over(&["migrate"]);
    let imported: serde_json::Value =
        serde_json::from_str(&over(&["import", "all.jsonl", "--json"])).unwrap();
    let found = over(&[
        "memory",
        "search",
        "Where does Zora Winterfeld keep her owls?",
    ]);
    assert!(found.contains(OWLS), "{found}");
    over(&["export", "back.jsonl"]);
    over(&["token", "revoke", &token]);
    let back = target(&from, |_| String::new());
    let export = to.folder.path().join("back.jsonl");
    std::fs::copy(export, back.folder.path().join("back.jsonl")).unwrap();
    assert_eq!(back.json(&["import", "back.jsonl"]), imported);
}
