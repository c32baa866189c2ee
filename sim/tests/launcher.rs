//! The launcher as a person uses it: commands, exit codes, and what programs see.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

/// A folder for the devices of one test, and the launcher.
struct Launcher {
    folder: PathBuf,
}

impl Launcher {
    fn new(test: &str) -> Launcher {
        build_library();
        let folder = std::env::temp_dir().join(format!("irdma-launcher-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Launcher { folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_irdma-sim"));
        command.args(arguments).env("XDG_RUNTIME_DIR", &self.folder).stdin(Stdio::null());
        // A shell that starts the tests in the background has them ignore these, and a shell that was
        // started so cannot trap them.
        let heed_signals = || {
            for signal in [libc::SIGINT, libc::SIGQUIT] {
                // SAFETY: the default action is no function of ours.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            Ok(())
        };
        // SAFETY: `signal` may be called between fork and exec.
        unsafe { command.pre_exec(heed_signals) };
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Must succeed; what it prints.
    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        text(&output.stdout)
    }

    /// Must fail with that exit code and one line that says what `words` say.
    fn refused(&self, arguments: &[&str], code: i32, words: &str) {
        let output = self.run(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(words), "{arguments:?}: {errors}");
        if code != 2 {
            assert_eq!(errors.lines().count(), 1, "{errors}");
        }
    }

    /// Process number of a running device.
    fn device(&self, name: &str) -> i32 {
        let list = self.succeed(&["list"]);
        let line = list.lines().find(|line| line.starts_with(name)).expect(name);
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

impl Drop for Launcher {
    /// Leaves no device behind, also after a failure.
    fn drop(&mut self) {
        for line in text(&self.run(&["list"]).stdout).lines() {
            self.run(&["stop", line.split(' ').next().unwrap_or_default()]);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Cargo does not build the library for these tests by itself.
fn build_library() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let launcher = Path::new(env!("CARGO_BIN_EXE_irdma-sim"));
        let folder = launcher.parent().and_then(Path::file_name).unwrap().to_str().unwrap();
        let profile = if folder == "debug" { "dev" } else { folder };
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "irdma-sim-preload", "--profile", profile])
            .status()
            .unwrap();
        assert!(built.success());
    });
}

fn kill(process: i32, signal: i32) {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

/// Waits for a child that is about to end.
fn ended(mut child: Child) -> ExitStatus {
    let due = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > due {
            child.kill().unwrap();
            panic!("the launcher did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn devices_are_started_listed_commanded_and_stopped() {
    let launcher = Launcher::new("life");
    assert_eq!(launcher.succeed(&["list"]), "");
    launcher.succeed(&["start", "one", "--gen", "3", "--mode", "poll"]);
    launcher.succeed(&["start", "two"]);
    let list = launcher.succeed(&["list"]);
    assert!(list.contains("one  gen 3, mode poll, kernel 7.2, process "), "{list}");
    assert!(list.contains("two  gen 2, mode trap, kernel 7.2, process "), "{list}");
    launcher.refused(&["start", "one"], 1, "'one' is running already");
    assert!(launcher.succeed(&["ctl", "two", "help"]).contains("status"));
    launcher.refused(&["ctl", "two", "dance"], 1, "dance");
    launcher.succeed(&["stop", "one"]);
    launcher.refused(&["stop", "one"], 1, "no device is called 'one'");
    launcher.refused(&["ctl", "one", "help"], 1, "no device is called 'one'");
    assert_eq!(launcher.succeed(&["list"]).lines().count(), 1);
    launcher.succeed(&["stop", "two"]);
    assert_eq!(launcher.succeed(&["list"]), "");
}

#[test]
fn the_name_of_a_killed_device_is_free() {
    let launcher = Launcher::new("killed");
    launcher.succeed(&["start", "lab"]);
    kill(launcher.device("lab"), libc::SIGKILL);
    let again = Instant::now() + Duration::from_secs(5);
    while !launcher.run(&["start", "lab"]).status.success() {
        assert!(Instant::now() < again);
    }
    launcher.succeed(&["stop", "lab"]);
}

#[test]
fn exit_codes_are_the_programs_or_tell_what_is_wrong() {
    let launcher = Launcher::new("codes");
    let run = ["run", "--provider", "c", "--"];
    let code = |program: &[&str]| launcher.run(&[&run, program].concat()).status.code();
    assert_eq!(code(&["true"]), Some(0));
    assert_eq!(code(&["sh", "-c", "exit 42"]), Some(42));
    assert_eq!(code(&["sh", "-c", "kill -TERM $$"]), Some(128 + libc::SIGTERM));
    launcher.refused(&[&run[..], &["no-such-program"]].concat(), 127, "no-such-program: program not found");
    launcher.refused(&[&run[..], &["/etc/passwd"]].concat(), 1, "not an executable file");
    launcher.refused(&["run", "--gen", "9", "--", "true"], 2, "9");
    launcher.refused(&["start", "../up"], 2, "a name has");
    launcher.refused(&["start", "run-1"], 1, "run-");
    launcher.refused(&["run", "--fabric", "nowhere", "--provider", "c", "--", "true"], 1, "'nowhere'");
    launcher.refused(&["run", "--plugin", "/no/libirdma-rdmav34.so", "--", "true"], 1, "cargo xtask build");
    assert_eq!(launcher.succeed(&["list"]), "");
}

#[test]
fn a_device_that_does_not_start_says_why() {
    let mut launcher = Launcher::new("deep");
    let top = launcher.folder.clone();
    launcher.folder.push("x".repeat(100));
    fs::create_dir(&launcher.folder).unwrap();
    launcher.refused(&["start", "lab"], 1, "the path of the device's socket is too long");
    let run = ["run", "--provider", "c", "--", "true"];
    launcher.refused(&run, 1, "the path of the device's socket is too long");
    launcher.folder = top;
}

/// What a program finds of the device, in a script's words.
const LOOK: &str = "cat /sys/class/infiniband/irdma0/node_type /sys/class/infiniband_verbs/uverbs0/ibdev && \
                    ls /sys/class/infiniband && cat /etc/libibverbs.d/* && test -c /dev/infiniband/uverbs0 && \
                    test -d /sys/class/net/lo && test -e /dev/tty && echo \"$RDMAV_DRIVERS\"";

#[test]
fn programs_find_the_device_and_one_driver() {
    let launcher = Launcher::new("files");
    let plugin = launcher.folder.join("libirdma-rdmav34.so");
    fs::write(&plugin, "").unwrap();
    let ours = launcher.folder.join("libirdma");
    for isolation in ["auto", "namespace", "rewrite"] {
        let look = |provider: &str| {
            let options = ["run", "--isolation", isolation, "--provider", provider, "--plugin"];
            let program = ["--", "sh", "-c", LOOK];
            let output = launcher.run(&[&options[..], &[plugin.to_str().unwrap()], &program].concat());
            // Not every machine allows namespaces.
            (isolation != "namespace" || output.status.success()).then(|| text(&output.stdout))
        };
        if let Some(seen) = look("ours") {
            let ours = ours.display();
            assert_eq!(seen, format!("1: CA\nirdma0\nirdma0\ndriver {ours}\n{ours}\n"), "{isolation}");
        }
        if let Some(seen) = look("c") {
            assert_eq!(seen, "1: CA\nirdma0\nirdma0\ndriver irdma\n\n", "{isolation}");
        }
    }
}

#[test]
fn a_programs_own_device_ends_with_its_last_child() {
    let launcher = Launcher::new("own");
    let run = |script: &str| {
        let script = script.replace("irdma-sim", env!("CARGO_BIN_EXE_irdma-sim"));
        launcher.succeed(&["run", "--provider", "c", "--", "sh", "-c", &script])
    };
    let list = run("irdma-sim list");
    assert!(list.starts_with("run-"), "{list}");
    let process: i32 = list.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
    let due = Instant::now() + Duration::from_secs(5);
    let runs =
        || fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|status| !status.contains(") Z "));
    while runs() && Instant::now() < due {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!runs());
    assert_eq!(fs::read_dir(launcher.folder.join("irdma-sim")).unwrap().count(), 0);
    // The program's own device has a name too.
    assert!(run("irdma-sim ctl $IRDMA_SIM_FABRIC help").contains("status"));
}

#[test]
fn what_a_killed_launcher_left_is_in_no_ones_way() {
    let launcher = Launcher::new("leftover");
    launcher.succeed(&["start", "lab"]);
    // Process numbers come round: the launcher finds what an earlier one of its number has left.
    let script = "left=$XDG_RUNTIME_DIR/irdma-sim/run-$$; mkdir -m 700 $left; \
                  for part in drivers stage root root/etc; do mkdir $left/$part; ln -s nowhere $left/$part/infiniband; done; \
                  exec irdma-sim run --provider c $DEVICE --isolation $ISOLATION -- cat /etc/libibverbs.d/irdma.driver";
    let script = script.replace("irdma-sim run", &format!("{} run", env!("CARGO_BIN_EXE_irdma-sim")));
    for device in ["--fabric lab", ""] {
        for isolation in ["auto", "rewrite"] {
            let mut command = Command::new("sh");
            command.args(["-c", &script]).stdin(Stdio::null());
            command
                .env("XDG_RUNTIME_DIR", &launcher.folder)
                .env("DEVICE", device)
                .env("ISOLATION", isolation);
            let output = command.output().unwrap();
            assert_eq!(text(&output.stdout), "driver irdma\n", "{device} {isolation}: {output:?}");
        }
    }
    launcher.succeed(&["stop", "lab"]);
    assert_eq!(fs::read_dir(launcher.folder.join("irdma-sim")).unwrap().count(), 0);
}

#[test]
fn signals_are_passed_on() {
    let launcher = Launcher::new("signals");
    for (name, signal) in [("TERM", libc::SIGTERM), ("INT", libc::SIGINT), ("QUIT", libc::SIGQUIT)] {
        let script = format!("trap 'exit 9' {name}; echo ready; while :; do sleep 0.05; done");
        let mut child = launcher
            .command(&["run", "--provider", "c", "--", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        kill(child.id() as i32, signal);
        assert_eq!(ended(child).code(), Some(9), "{name}");
    }
    // A program without a handler ends by it.
    let child = launcher.command(&["run", "--provider", "c", "--", "sleep", "100"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    kill(child.id() as i32, libc::SIGINT);
    assert_eq!(ended(child).code(), Some(128 + libc::SIGINT));
}

#[test]
fn a_program_that_does_not_notice_that_its_device_is_gone_is_ended() {
    let launcher = Launcher::new("gone");
    for signal in [libc::SIGKILL, libc::SIGSTOP] {
        launcher.succeed(&["start", "lab"]);
        let device = launcher.device("lab");
        let program = launcher
            .command(&["run", "--provider", "c", "--fabric", "lab", "--", "sh", "-c", "sleep 60; true"])
            .env("IRDMA_SIM_TIMEOUT", "300")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(200));
        kill(device, signal);
        let start = Instant::now();
        let output = program.wait_with_output().unwrap();
        let errors = text(&output.stderr);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let why = if signal == libc::SIGKILL { "has ended" } else { "does not answer" };
        assert!(errors.contains(&format!("the device process {why}")), "{errors}");
        if signal == libc::SIGSTOP {
            launcher.succeed(&["stop", "lab"]);
        }
    }
}
