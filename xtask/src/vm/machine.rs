//! QEMU, run out of its unpacked root.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use irdma_vm_agent::PORT;

use super::packages::Set;

/// Memory of a guest, in MiB.
const MEMORY: u32 = 2048;

/// What a machine is made of.
pub struct Machine<'parts> {
    /// Number of the guest, from 0.
    pub number: u32,
    /// Generation of the device.
    pub generation: u32,
    /// Whether the device carries ordinary network traffic.
    pub has_lan: bool,
    /// The guest's kernel.
    pub kernel: &'parts Path,
    /// Its initial file system.
    pub initrd: &'parts Path,
    /// Its disk.
    pub disk: &'parts Path,
    /// The sockets of the device's functions.
    pub functions: &'parts [PathBuf],
    /// The socket of the agent's port.
    pub port: &'parts Path,
    /// Where the serial console's output goes.
    pub serial: &'parts Path,
    /// Whether this terminal is the guest's.
    pub is_shell: bool,
}

impl Machine<'_> {
    /// QEMU with all that is said to it.
    pub fn command(&self) -> Result<Command> {
        let root = Set::Machine.unpacked()?;
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        // The machine's own loader and C library may be too old for it.
        let mut command = Command::new(root.join("usr/lib64/ld-linux-x86-64.so.2"));
        command.env("QEMU_MODULE_DIR", libraries.join("qemu"));
        command.arg("--library-path").arg(libraries).arg(root.join("usr/bin/qemu-system-x86_64"));
        for firmware in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(root.join(firmware));
        }
        // The device reads and writes the guest's memory itself: it must be a file that both map.
        command.args(["-machine", "q35,memory-backend=memory", "-accel", "tcg,thread=multi", "-cpu", "max"]);
        command.args(["-smp", "2", "-m", &MEMORY.to_string()]);
        command.args(["-object", &format!("memory-backend-memfd,id=memory,size={MEMORY}M,share=on")]);
        command.args(["-nodefaults", "-nographic", "-no-reboot"]);
        command.arg("-serial").arg(option("file:", self.serial));
        if self.is_shell {
            command.args(["-chardev", "stdio,id=terminal,signal=off", "-serial", "chardev:terminal"]);
        }
        command.arg("-drive").arg(option("if=virtio,format=raw,readonly=on,file=", self.disk));
        command.args(["-device", "virtio-serial-pci", "-chardev"]);
        command.arg(option("socket,id=agent,path=", self.port));
        command.args(["-device", &format!("virtserialport,chardev=agent,name={PORT}")]);
        command.args(["-device", "virtio-rng-pci"]);
        for (number, socket) in self.functions.iter().enumerate() {
            command.args(["-device", &function(number, &socket.display().to_string())]);
        }
        command.arg("-kernel").arg(self.kernel).arg("-initrd").arg(self.initrd);
        command.args(["-append", &self.kernel_command_line()]);
        Ok(command)
    }

    fn kernel_command_line(&self) -> String {
        // A guest that oopses ends, and with it the run. Emulated timers may be late when the kernel checks them,
        // and processors that have to wait for the host are not stalled. What the kernel does not know is for `start`.
        let mut line =
            "console=ttyS0 quiet panic=-1 oops=panic no_timer_check mitigations=off rcupdate.rcu_cpu_stall_timeout=60"
                .to_owned();
        line += &format!(" vm_guest={} vm_generation={}", self.number, self.generation);
        line += &format!(" vm_functions={}", self.functions.len());
        if self.has_lan {
            line += " vm_lan=1";
        }
        if self.is_shell {
            line += " vm_shell=1";
        }
        line
    }
}

/// An option with a path, whose commas QEMU wants doubled.
fn option(before: &str, path: &Path) -> String {
    format!("{before}{}", path.display().to_string().replace(',', ",,"))
}

/// A function of the device. Its socket is an object, which only the JSON form can express. A processor waits for each
/// of its stores: stores that are only sent on pile up when programs ring doorbells faster than the device looks at
/// them, and the next load, behind them all, takes longer than QEMU waits for it.
fn function(number: usize, socket: &str) -> String {
    let path = socket.replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        r#"{{"driver":"vfio-user-pci","addr":"{:#x}","x-no-posted-writes":true,"socket":{{"type":"unix","path":"{path}"}}}}"#,
        FIRST_SLOT + number
    )
}

/// PCI slot of the first function: behind those that QEMU gives to its own devices.
const FIRST_SLOT: usize = 0x10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_survive_both_forms_of_options() {
        assert_eq!(option("file:", Path::new("/a,b")), "file:/a,,b");
        assert!(
            function(1, "/x\"y").contains(
                r#""addr":"0x11","x-no-posted-writes":true,"socket":{"type":"unix","path":"/x\"y"}"#
            )
        );
    }
}
