//! Commands about shared receive queues (GEN3).

use irdma_engine::Engine;
use irdma_engine::spec::{Span, SrqSpec};

use super::{Command, Failure};
use crate::backing::Backing;
use crate::field::Field;
use crate::function::Function;
use crate::host::Host;

const NUMBER: Field = Field::new(15, 0);
const MAPPED: Field = Field::bit(47);
const ARM_LIMIT: Field = Field::bit(61);
const SIZE: Field = Field::new(3, 0);
const WQE_SIZE: Field = Field::new(5, 4);
const LIMIT: Field = Field::new(43, 32);
const DOMAIN: Field = Field::new(39, 16);
const QUANTUM: u64 = 32;
const SHADOW_BYTES: u64 = 64;

impl Function {
    /// `CREATE_SRQ`.
    pub(super) fn create_srq(&mut self, engine: &mut Engine<Host>, command: &Command) -> Result<(), Failure> {
        let number = command.header_number(NUMBER);
        let sizes = command.word(0);
        // 8 quanta for code 0, twice that for each more.
        let quanta = 8 << SIZE.number(sizes);
        let pd = self.domain(engine, DOMAIN.number(command.word(16)));
        let bytes = u64::from(quanta) * QUANTUM;
        let address = command.word(32) & !0xff;
        let ring = Backing::ring(self.id, command.has(MAPPED), address, command.first_entry(), bytes);
        let shadow = Backing::physical(self.id, command.word(40) & !0x3f, SHADOW_BYTES);
        let spec = SrqSpec {
            pd,
            ring: Span { backing: ring, offset: 0 },
            quanta,
            wqe_quanta: 1 << WQE_SIZE.number(sizes),
            shadow: Span { backing: shadow, offset: 0 },
        };
        engine.create_srq(spec, Some(number))?;
        self.shared_queues.insert(number, command.word(8));
        if command.has(ARM_LIMIT) {
            engine.modify_srq_limit(self.object(number), LIMIT.number(sizes))?;
        }
        Ok(())
    }

    /// `MODIFY_SRQ`: arms the limit event.
    pub(super) fn modify_srq(&mut self, engine: &mut Engine<Host>, command: &Command) -> Result<(), Failure> {
        let limit = if command.has(ARM_LIMIT) { LIMIT.number(command.word(0)) } else { 0 };
        Ok(engine.modify_srq_limit(self.object(command.header_number(NUMBER)), limit)?)
    }

    /// `DESTROY_SRQ`.
    pub(super) fn destroy_srq(
        &mut self,
        engine: &mut Engine<Host>,
        command: &Command,
    ) -> Result<(), Failure> {
        let number = command.header_number(NUMBER);
        engine.destroy_srq(self.object(number))?;
        self.shared_queues.remove(&number);
        Ok(())
    }
}
