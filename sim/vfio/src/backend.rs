//! One function as a vfio-user server shows it to its virtual machine.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use irdma_engine::spec::{FunctionId, Generation};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_BAR2_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, ServerBackend, ServerRegion};

use crate::interrupts::VECTORS;
use crate::machine::Machine;
use crate::pci;

/// Largest piece of a region that is read or written at a time; registers are words.
const MOST_BYTES: usize = pci::BYTES;

/// The NIC, shared by the threads that serve its functions and the one that keeps time.
#[derive(Debug)]
pub struct Shared {
    machine: Mutex<Machine>,
    /// Something may be due earlier than before.
    pub changed: Condvar,
    /// Functions that have a virtual machine at the moment.
    present: AtomicUsize,
}

impl Shared {
    /// The NIC behind its lock.
    pub fn new(machine: Machine) -> Arc<Self> {
        Arc::new(Self { machine: Mutex::new(machine), changed: Condvar::new(), present: AtomicUsize::new(0) })
    }

    /// The NIC, for this thread alone.
    pub fn lock(&self) -> MutexGuard<'_, Machine> {
        // A thread that panicked has ended the process.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A function and the NIC that it belongs to.
#[derive(Debug)]
pub struct Backend {
    function: FunctionId,
    shared: Arc<Shared>,
    /// Its virtual machine has been heard of.
    present: bool,
}

impl Backend {
    /// For that function, which has no virtual machine yet.
    pub fn new(function: FunctionId, shared: Arc<Shared>) -> Self {
        Self { function, shared, present: false }
    }

    /// The virtual machine says something.
    fn greet(&mut self) {
        if !std::mem::replace(&mut self.present, true) {
            self.shared.present.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The virtual machine has gone, and its function is as new; true if it was the last one.
    pub fn leave(&mut self) -> bool {
        self.greet();
        self.shared.lock().disconnect(self.function);
        self.present = false;
        self.shared.present.fetch_sub(1, Ordering::SeqCst) == 1
    }
}

/// The regions of a function.
pub fn regions(generation: Generation) -> Vec<ServerRegion> {
    let size = |index| match index {
        VFIO_PCI_BAR0_REGION_INDEX => Machine::bar_bytes(generation),
        VFIO_PCI_BAR2_REGION_INDEX => pci::VECTOR_BAR_BYTES,
        VFIO_PCI_CONFIG_REGION_INDEX => pci::BYTES as u64,
        _ => 0,
    };
    (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| {
            let size = size(index);
            let flags = if size > 0 { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE } else { 0 };
            let region_info = vfio_region_info {
                argsz: size_of::<vfio_region_info>() as u32,
                flags,
                index,
                size,
                ..vfio_region_info::default()
            };
            ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
        })
        .collect()
}

/// The interrupts of a function: MSI-X, and nothing else.
pub fn interrupts() -> Vec<IrqInfo> {
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| {
            let (flags, count) = if index == VFIO_PCI_MSIX_IRQ_INDEX {
                (VFIO_IRQ_INFO_EVENTFD, VECTORS as u32)
            } else {
                (0, 0)
            };
            IrqInfo { index, flags, count }
        })
        .collect()
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        self.greet();
        if data.len() > MOST_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut machine = self.shared.lock();
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => {
                if let Some(configuration) = machine.configuration(self.function) {
                    configuration.read(offset, data);
                }
            }
            VFIO_PCI_BAR0_REGION_INDEX => {
                for (word, index) in data.chunks_mut(4).zip(0..) {
                    let place = offset.saturating_add(4 * index);
                    let value = machine.read(self.function, place & !3).to_le_bytes();
                    // A load of less than a word gets the bytes that it asks for.
                    let skip = (place & 3) as usize;
                    for (byte, value) in word.iter_mut().zip(value.iter().skip(skip)) {
                        *byte = *value;
                    }
                }
            }
            _ => data.fill(0),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.len() > MOST_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut machine = self.shared.lock();
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => {
                let configuration = machine.configuration(self.function);
                if configuration.is_some_and(|configuration| configuration.write(offset, data)) {
                    machine.reset(self.function);
                }
            }
            // Registers are written as whole words.
            VFIO_PCI_BAR0_REGION_INDEX if offset.is_multiple_of(4) => {
                let (words, _) = data.as_chunks::<4>();
                for (word, index) in words.iter().zip(0..) {
                    let place = offset.saturating_add(4 * index);
                    machine.write(self.function, place, u32::from_le_bytes(*word));
                }
                self.shared.changed.notify_one();
            }
            _ => {}
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        descriptor: Option<File>,
    ) -> io::Result<()> {
        self.greet();
        // What has no descriptor is no memory (other devices' registers, ROMs).
        let Some(file) = descriptor else { return Ok(()) };
        let mut machine = self.shared.lock();
        let reach = machine.reach(self.function).ok_or(io::ErrorKind::NotFound)?;
        reach.memory.map(address, size, &file, offset, flags.contains(DmaMapFlags::WRITE))
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        let mut machine = self.shared.lock();
        let reach = machine.reach(self.function).ok_or(io::ErrorKind::NotFound)?;
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            reach.memory.clear();
        } else {
            reach.memory.unmap(address, size);
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.shared.lock().reset(self.function);
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        _flags: u32,
        start: u32,
        count: u32,
        descriptors: Vec<File>,
    ) -> io::Result<()> {
        if index != VFIO_PCI_MSIX_IRQ_INDEX {
            return Ok(());
        }
        let mut machine = self.shared.lock();
        let interrupts = machine.interrupts(self.function).ok_or(io::ErrorKind::NotFound)?;
        match (count, descriptors.is_empty()) {
            (0, _) => interrupts.clear(),
            (_, true) => interrupts.disconnect(start, count),
            (_, false) => interrupts.connect(start, descriptors),
        }
        Ok(())
    }
}
