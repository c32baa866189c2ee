//! Control commands: those of the card, and what the connection manager has to do with them.

use irdma_ucma::Manager;
use irdma_uverbs::Device;

/// Carries out a command; the error is a line for the person who asked.
pub fn answer(device: &mut Device, manager: &mut Manager, line: &str) -> Result<String, String> {
    match line {
        "connections" => return Ok(manager.describe()),
        "restart" if !manager.is_unused() => return Err("a program has rdma_cm open".into()),
        _ => {}
    }
    let answer = device.control(line)?;
    if line == "restart" {
        manager.begin_anew(device.profile().seed);
    }
    if device.is_removed() {
        manager.remove_card();
    }
    Ok(answer)
}
