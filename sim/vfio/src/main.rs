//! The NIC of a virtual machine: plays an IPU E2000 (GEN3) or an E810 (GEN2) to the guest's own
//! drivers, over vfio-user, on the engine of the software device.
//!
//! Everything that the guest writes is taken for hostile: registers, descriptors, rings. A
//! mistake in them costs the guest its queue or its command, and nothing else.

mod backend;
mod backing;
mod control;
mod event_queue;
mod field;
mod function;
mod guest;
mod hmc;
mod host;
mod ice;
mod idpf;
mod interrupts;
mod machine;
mod options;
mod pci;
mod register;
mod serve;

use std::process::ExitCode;

use options::Options;

fn main() -> ExitCode {
    // A device with a mistake in it does not go on with half of its state.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("irdma-vfio: {panic}");
        std::process::abort();
    }));
    let result = Options::parse(std::env::args().skip(1)).and_then(|options| serve::run(&options));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("irdma-vfio: {message}");
            ExitCode::FAILURE
        }
    }
}
