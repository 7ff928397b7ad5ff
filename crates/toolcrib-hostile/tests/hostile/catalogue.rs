//! What is said of the faults is true of all of them.

use serde_json::Value;
use toolcrib_hostile::{FAULTS, Value as Given};

use crate::raw::command;

fn output(args: &[&str]) -> (i32, String, String) {
    let output = command(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_list_is_json_and_has_every_fault() {
    let (code, list, _) = output(&["--list"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    let names: Vec<&str> =
        list.as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!((code, names.len()), (0, FAULTS.len()));
    let drip = list.as_array().unwrap().iter().find(|it| it["name"] == "drip").unwrap();
    assert_eq!((&drip["family"], &drip["transports"]), (&"noise".into(), &"both".into()));
    assert_eq!(drip["value"]["number"]["default"], "20");
}

#[test]
fn help_names_every_fault() {
    let (code, help, _) = output(&["--help"]);
    assert_eq!(code, 0);
    for fault in FAULTS {
        assert!(help.contains(&format!("--{}", fault.name)), "{}", fault.name);
    }
}

#[test]
fn the_documentation_has_every_fault_with_its_default() {
    let page = include_str!("../../../../docs/hostile.md");
    for fault in FAULTS {
        let row = match fault.value {
            Given::None => format!("| `--{}` |", fault.name),
            Given::Number { name, default, .. } => {
                format!("| `--{} {name}` | {default} |", fault.name)
            }
            Given::Text { name, default } => format!("| `--{} {name}` | `{default}` |", fault.name),
        };
        assert!(page.contains(&row), "{row}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `--")).count();
    let limits = 6;
    assert_eq!(rows, FAULTS.len() + limits);
}

#[test]
fn what_is_wrong_with_the_arguments_is_said() {
    for (args, expected) in [
        (&["--drip", "fast"][..], "invalid value 'fast'"),
        (&["--children", "5000"], "5000 is not in 0..=1000"),
        (&["--http-drop"], "--http-drop needs --http PORT"),
        (&["--no-such-fault"], "unexpected argument"),
        (&["--record", "/no/such/folder/record"], "name a file that can be written"),
    ] {
        let (code, _, stderr) = output(args);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}
