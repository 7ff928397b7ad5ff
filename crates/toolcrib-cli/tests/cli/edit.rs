//! `toolcrib add` and `toolcrib remove`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;

use crate::support::{Folder, sample};

const COMMENTED: &str = "\
# All of ours.

preset = \"crib\" # the default

# Issues and such.
[servers.github]
command = \"npx\" # from node
args = [
    \"-y\",
    \"github\", # pinned
]

# Clocks.
[servers.time]
command = \"uvx\"
# args = [\"later\"]

# Who may do what.
[policy]
read_only = true
# The end.
";

#[test]
fn a_server_is_added_and_the_rest_stays_as_it_is() {
    let folder = Folder::new(&[("toolcrib.toml", COMMENTED)]);
    let said = folder.text("add notes --env TOKEN --env MODE=ro --description Notes -- run --all");
    assert_eq!(said, "Added server `notes` in toolcrib.toml.\n");
    let added = "\n[servers.notes]\ndescription = \"Notes\"\ncommand = \"run\"\nargs = [\"--all\"]\n\
        env = { TOKEN = \"${TOKEN}\", MODE = \"ro\" }\n";
    let (before, after) = COMMENTED.split_once("\n# Who may").unwrap();
    assert_eq!(folder.read("toolcrib.toml"), format!("{before}{added}\n# Who may{after}"));
    assert_eq!(folder.text("remove notes"), "Removed server `notes` from toolcrib.toml.\n");
    assert_eq!(folder.read("toolcrib.toml"), COMMENTED);
}

#[test]
fn a_server_goes_with_the_comment_above_it_and_no_other() {
    let folder = Folder::new(&[("toolcrib.toml", COMMENTED)]);
    folder.text("remove github");
    let text = folder.read("toolcrib.toml");
    assert!(
        text.starts_with("# All of ours.\n\npreset = \"crib\" # the default\n\n# Clocks."),
        "{text}"
    );
    assert!(!text.contains("github") && text.contains("# args") && text.ends_with("# The end.\n"));

    let text = "# All of ours.\n# Keep it so.\n\n# One.\n[servers.a]\ncommand = \"x\"\n\n[servers.b]\ncommand = \"y\"\n";
    let folder = Folder::new(&[("toolcrib.toml", text)]);
    folder.text("remove a");
    let rest = "# All of ours.\n# Keep it so.\n\n[servers.b]\ncommand = \"y\"\n";
    assert_eq!(folder.read("toolcrib.toml"), rest);
    folder.text("remove b");
    assert_eq!(folder.read("toolcrib.toml"), "# All of ours.\n# Keep it so.\n");
}

#[test]
fn a_comment_at_the_end_stays_with_what_it_is_about() {
    let text = "[servers.a]\ncommand = \"x\"\n# args = [\"y\"]\n";
    let folder = Folder::new(&[("toolcrib.toml", text)]);
    folder.text("add b -- z");
    assert_eq!(folder.read("toolcrib.toml"), format!("{text}\n[servers.b]\ncommand = \"z\"\n"));
}

#[test]
fn every_way_to_write_servers_can_be_edited() {
    for text in [
        "servers = { a = { command = \"x\" } }\n",
        "servers.a.command = \"x\"\n",
        "[servers]\na = { command = \"x\" }\n",
        "[servers]\na.command = \"x\"\n\n[policy]\nread_only = true\n",
        "[servers.a]\r\ncommand = \"x\"\r\n",
        "\u{feff}[servers.a]\ncommand = \"x\"\n[servers.a.env]\nK = \"v\"\n",
    ] {
        let folder = Folder::new(&[("toolcrib.toml", text)]);
        folder.text("add b --url https://h/mcp --header X:~${X}");
        let shown = folder.json("config show --json");
        assert_eq!(shown["servers"]["a"]["command"], "x", "{text}");
        assert_eq!(shown["servers"]["b"]["headers"]["X"], "${X}", "{text}");
        folder.text("remove a");
        let shown = folder.json("config show --json");
        assert_eq!(shown["servers"].as_object().unwrap().len(), 1, "{text}");
        let left = folder.read("toolcrib.toml");
        assert_eq!(left.matches("\r\n").count() > 0, text.contains('\r'), "{left:?}");
        assert_eq!(left.matches('\n').count() == left.matches("\r\n").count(), text.contains('\r'));
    }
}

#[test]
fn a_namesake_is_replaced_only_by_force_and_keeps_its_place() {
    let folder = Folder::new(&[("toolcrib.toml", COMMENTED)]);
    let message = folder.fails(2, "add github -- x");
    assert_eq!(
        message,
        "error: toolcrib.toml has a server `github` already; --force replaces it\n"
    );
    assert_eq!(folder.read("toolcrib.toml"), COMMENTED);
    let value = folder.json("add github --force --json -- x");
    assert_eq!((&value["replaced"], &value["created"]), (&true.into(), &false.into()));
    let text = folder.read("toolcrib.toml");
    assert!(
        text.contains("# Issues and such.\n[servers.github]\ncommand = \"x\"\n\n# Clocks."),
        "{text}"
    );
}

#[test]
fn what_cant_be_a_server_changes_nothing() {
    let folder = Folder::new(&[("toolcrib.toml", COMMENTED), ("mcp.json", "{}")]);
    for (args, expected) in [
        ("add x", "required"),
        ("add x --url https://h -- y", "cannot be used with"),
        ("add x --url h", "error: `url`: expected an address"),
        ("add ~ -- y", "begins or ends with a space"),
        ("add x --env =v -- y", "--env: expected NAME=VALUE or NAME"),
        ("add x --header hunter2 --url https://h", "--header: expected a name and a value"),
        ("add x --header a~b:hunter2 --url https://h", "`a b` can't be the name of a header"),
        ("add x --config mcp.json -- y", "mcp.json is JSON, which is read but not changed"),
        ("remove githib", "has no server `githib`; did you mean `github`?"),
        ("remove zzz", "has no server `zzz`; it has github, time"),
    ] {
        let message = folder.fails(2, args);
        assert!(message.contains(expected) && !message.contains("hunter2"), "{args}: {message}");
        assert_eq!(folder.read("toolcrib.toml"), COMMENTED, "{args}");
    }
    fs::write(folder.path("toolcrib.toml"), "presett = 1\n").unwrap();
    let message = folder.fails(2, "add x -- y");
    assert!(message.contains("line 1, column 1, `presett`"), "{message}");
}

#[test]
fn a_new_file_is_the_users_and_private() {
    let folder = sample();
    let value = folder.json("add a --json -- x");
    assert_eq!(value["created"], true);
    let file = "home/.config/toolcrib/toolcrib.toml";
    assert_eq!(folder.read(file), "[servers.a]\ncommand = \"x\"\n");
    let mode = fs::metadata(folder.path(file)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    folder.text("add b --config here.toml -- x");
    assert!(folder.path("here.toml").exists());
}

#[test]
fn permissions_and_links_stay() {
    let folder = Folder::new(&[("real/toolcrib.toml", "")]);
    let real = folder.path("real/toolcrib.toml");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&real, folder.path("toolcrib.toml")).unwrap();
    folder.text("add a -- x");
    assert!(fs::symlink_metadata(folder.path("toolcrib.toml")).unwrap().is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("[servers.a]"));
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::read_dir(folder.path("real")).unwrap().count(), 1);
}

#[test]
fn of_many_changes_at_once_none_is_lost() {
    let folder = Folder::new(&[("toolcrib.toml", "")]);
    let spawn = |at: usize| {
        let mut command = folder.command(&format!("add s{at} --quiet -- x"));
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..12).map(spawn).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(folder.read("toolcrib.toml").matches("[servers.s").count(), 12);
}

#[test]
fn a_secret_that_is_written_out_is_told_of() {
    let folder = Folder::new(&[("toolcrib.toml", "")]);
    let output = folder.run("add a --env API_KEY=hunter2 --env MODE=ro -- x");
    assert_eq!(output.code, Some(0));
    assert!(output.stderr.starts_with("warning: the value of `API_KEY` is written out in"));
    assert!(!output.stderr.contains("hunter2") && !output.stderr.contains("MODE"));
    let told = folder.run("add b --env API_KEY -- x").stderr;
    assert_eq!(told, "`toolcrib doctor b` starts and checks it.\n");
    let told = folder.run("add b~c --config my~own.toml -- x").stderr;
    assert_eq!(told, "`toolcrib doctor 'b c' --config 'my own.toml'` starts and checks it.\n");
    assert_eq!(folder.run("add c --quiet -- x").stderr, "");
}

#[test]
fn a_program_in_this_folder_is_found_from_anywhere() {
    let folder = Folder::new(&[("toolcrib.toml", ""), ("bin/run", "")]);
    folder.text("add a -- ./bin/run ./data");
    folder.text("add b -- run");
    let shown = folder.json("config show --json");
    let expected = fs::canonicalize(folder.path("bin/run")).unwrap();
    let command = shown["servers"]["a"]["command"].as_str().unwrap();
    assert_eq!(fs::canonicalize(command).unwrap(), expected);
    assert!(command.starts_with('/'), "{command}");
    assert_eq!(shown["servers"]["b"]["command"], "run");
}
