//! The process that installs or uninstalls is really killed, at every point: nothing of it runs any more.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::*;

/// Tells the process that it is the one to be killed: what it does, where, and after how many steps.
const ORDER: &str = "IRDMA_INSTALL_ORDER";

/// What the process does that is to be killed.
fn carry_out(order: &str) {
    let mut words = order.splitn(3, ' ');
    let mut word = || words.next().unwrap();
    let (what, steps, root) = (word(), word().parse().unwrap(), Path::new(word()));
    let mut steps = Steps::until_kill(steps);
    match what {
        "install" => install(root, OURS, &mut steps).unwrap(),
        _ => assert!(uninstall(root, &mut steps).unwrap()),
    }
}

/// Says whether it was killed, or else has succeeded.
fn kill_after(steps: usize, what: &str, root: &Root) -> bool {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args([
        "--exact",
        "install::tests::killed::a_killed_process_leaves_what_a_second_one_repairs_or_undoes",
    ]);
    process.env(ORDER, format!("{what} {steps} {}", root.folder.display()));
    let output = process.output().unwrap();
    let was_killed = output.status.signal() == Some(9);
    assert!(was_killed || output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    was_killed
}

/// Kills `what` at every point; says how many there are.
fn kill_everywhere(what: &str, has: Has) -> usize {
    let root = Root::new(&format!("kill-{what}"), has);
    let before = root.look();
    root.install(&mut Steps::all()).unwrap();
    let whole = root.look_at_content();
    for points in 0.. {
        root.uninstall(&mut Steps::all()).unwrap();
        assert_eq!(root.look(), before, "{has:?}, {what} was killed at {points} and undone");
        if what == "uninstall" {
            root.install(&mut Steps::all()).unwrap();
        }
        if !kill_after(points, what, &root) {
            return points;
        }
        root.is_usable(has);
        if points % 2 == 0 {
            root.install(&mut Steps::all()).unwrap();
            assert_eq!(root.look_at_content(), whole, "{has:?}, {what} was killed at {points} and repaired");
        }
    }
    unreachable!("it ends")
}

#[test]
fn a_killed_process_leaves_what_a_second_one_repairs_or_undoes() {
    // The process to be killed is this test once more.
    if let Ok(order) = std::env::var(ORDER) {
        return carry_out(&order);
    }
    for has in [SYSTEMS[0], SYSTEMS[1], SYSTEMS[2], SYSTEMS[4]] {
        let points = (kill_everywhere("install", has), kill_everywhere("uninstall", has));
        assert!(points.0 >= 15 && points.1 >= 6, "only {points:?} points");
    }
}
