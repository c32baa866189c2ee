//! The library inside a real program, against a server that only writes down.
//!
//! Each test runs this test binary again, under the library, for a function
//! of `inside`; what that does wrong makes its exit code non-zero.

#![cfg(target_arch = "x86_64")]

mod inside;
mod server;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use irdma_sim_protocol::{Operation, ROOT_VARIABLE, SOCKET_VARIABLE, TIMEOUT_VARIABLE};
use server::Server;

/// The library under test, which cargo puts beside this binary or one folder up.
fn library() -> PathBuf {
    let binary = std::env::current_exe().unwrap();
    binary
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("libirdma_sim_preload.so"))
        .find(|path| path.is_file())
        .expect("the library is built with its tests")
}

/// Runs a function of `inside` under the library.
fn run(server: &Server, name: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("inside::{name}"), "--ignored", "--nocapture", "--test-threads=1"])
        .env("LD_PRELOAD", library())
        .env(variable(SOCKET_VARIABLE), server.socket())
        .env(variable(ROOT_VARIABLE), server.root())
        .env(variable(TIMEOUT_VARIABLE), "500")
        .output()
        .unwrap()
}

fn variable(name: &std::ffi::CStr) -> &str {
    name.to_str().unwrap()
}

/// Runs it, and it must succeed; what it wrote to standard error.
fn succeed(server: &Server, name: &str) -> String {
    let output = run(server, name);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{:?}\n{text}\n{errors}", output.status);
    assert!(text.contains("1 passed"), "{text}");
    errors
}

#[test]
fn a_node_becomes_a_bar_at_the_first_ioctl() {
    let server = Server::start("node");
    succeed(&server, "files::node");
    let requests = server.state.requests.lock().unwrap();
    let opened = requests.iter().filter(|request| request.operation == Operation::Open as u32).count();
    assert_eq!(opened, 1);
}

#[test]
fn the_connection_manager_is_written_to_and_waited_for() {
    let server = Server::start("manager");
    succeed(&server, "manager::manager");
    let requests = server.state.requests.lock().unwrap();
    let opened = requests.iter().filter(|request| request.operation == Operation::OpenManager as u32);
    assert_eq!(opened.count(), 2);
    // Nothing but commands of its nodes got as far as that.
    let lengths = requests.iter().filter(|request| request.operation == Operation::Manage as u32);
    assert_eq!(lengths.map(|request| request.b).collect::<Vec<_>>(), [4, 8, 8, 8, 8, 8]);
}

#[test]
fn a_thread_that_waits_for_an_event_can_be_cancelled() {
    let server = Server::start("cancelled");
    succeed(&server, "manager::cancelled");
}

#[test]
fn every_kind_of_store_arrives() {
    let server = Server::start("stores");
    succeed(&server, "doorbells::stores");
    let expected = vec![
        (0, 0x1122_3344, 4),
        (64, 7, 4),
        (4096 + 8, 0x1122_3344_5566_7788, 8),
        (2, 0x5566, 2),
        (3, 0x77, 1),
        (0, 0x99, 4),
        (16, 0x0807_0605_0403_0201, 8),
        (24, 0x100f_0e0d_0c0b_0a09, 8),
    ];
    assert_eq!(server.state.doorbells(), expected);
}

#[test]
fn doorbells_of_many_threads_all_arrive() {
    let server = Server::start("threads");
    succeed(&server, "doorbells::threads");
    let mut values: Vec<u64> = server.state.doorbells().iter().map(|doorbell| doorbell.1).collect();
    values.sort();
    assert_eq!(values, (0..8 * 200).collect::<Vec<u64>>());
}

#[test]
fn a_forked_child_makes_its_own_connection() {
    let server = Server::start("fork");
    succeed(&server, "doorbells::fork");
    assert_eq!(server.state.doorbells(), [(0, 1, 4), (0, 2, 4), (0, 3, 4)]);
    assert_eq!(server.state.connections.load(Ordering::Relaxed), 2);
}

#[test]
fn foreign_faults_reach_the_programs_handler() {
    let server = Server::start("foreign");
    succeed(&server, "signals::foreign");
}

#[test]
fn a_foreign_fault_without_handler_kills() {
    use std::os::unix::process::ExitStatusExt;
    let server = Server::start("kill");
    for name in
        ["signals::fault_without_handler", "signals::sent_without_handler", "signals::unknown_instruction"]
    {
        let output = run(&server, name);
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{name}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            errors.contains("not supported in trap mode"),
            name == "signals::unknown_instruction",
            "{errors}"
        );
    }
}

#[test]
fn bus_errors_are_never_blocked() {
    let server = Server::start("masks");
    succeed(&server, "signals::masks");
    assert_eq!(server.state.doorbells().len(), 4);
}

#[test]
fn a_program_that_closes_all_descriptors_is_served_on() {
    let server = Server::start("closes");
    succeed(&server, "doorbells::closes_all");
    assert_eq!(server.state.doorbells(), [(0, 1, 4), (0, 2, 4)]);
}

#[test]
fn errors_and_refusals_come_back() {
    let server = Server::start("errors");
    succeed(&server, "files::errors");
}

#[test]
fn the_harness_steps_and_commands() {
    let server = Server::start("harness");
    succeed(&server, "files::harness");
}

#[test]
fn a_silent_device_counts_as_removed_after_the_time_out() {
    let server = Server::start("silent");
    server.state.silent.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let errors = succeed(&server, "doorbells::removed");
    assert!(errors.contains("did not answer within 500 ms"), "{errors}");
    assert!(start.elapsed() >= Duration::from_millis(500) && start.elapsed() < Duration::from_secs(5));
    assert_eq!(server.state.doorbells().len(), 1);
}

#[test]
fn a_dead_device_counts_as_removed_at_once() {
    let server = Server::start("dead");
    server.state.dies.store(true, Ordering::Relaxed);
    let errors = succeed(&server, "doorbells::removed");
    assert!(errors.contains("the device process has ended"), "{errors}");
    assert_eq!(errors.matches("irdma-sim:").count(), 1, "{errors}");
}

#[test]
fn a_device_that_may_not_read_us_is_explained() {
    let server = Server::start("blind");
    server.state.blind.store(true, Ordering::Relaxed);
    let errors = succeed(&server, "files::refused");
    assert!(errors.contains("ptrace_scope"), "{errors}");
}

#[test]
fn paths_of_the_device_are_redirected() {
    let server = Server::start("paths");
    let class = server.root().join("sys/class/infiniband/irdma0");
    std::fs::create_dir_all(&class).unwrap();
    std::fs::write(class.join("node_type"), "1: CA\n").unwrap();
    succeed(&server, "files::paths");
}
