//! Commands about queue pairs.

use irdma_engine::Engine;
use irdma_engine::event::AsyncEvent;
use irdma_engine::event::{Source, Subject};
use irdma_engine::spec::{Id, QpChange, QpSpec, QpState, Service, Span};

use super::queue_pair_context::{CONTEXT_BYTES, Context};
use super::{Command, Failure};
use crate::backing::Backing;
use crate::field::Field;
use crate::function::Function;
use crate::host::Host;

const NUMBER: Field = Field::new(23, 0);
const MAPPED: Field = Field::bit(45);
const KIND: Field = Field::new(50, 48);
const NEIGHBOUR_VALID: Field = Field::bit(59);
const STATE: Field = Field::new(62, 60);
const QUANTUM: u64 = 32;
const SHADOW_BYTES: u64 = 64;

const EVENT_CODE: Field = Field::new(15, 0);
const EVENT_SOURCE: Field = Field::new(19, 16);
const RECEIVE_CODE: Field = Field::new(15, 0);
const SEND_CODE: Field = Field::new(47, 32);
const MAKE_EVENT: Field = Field::bit(59);
const CODES_GIVEN: Field = Field::bit(60);
const FLUSH_SENDS: Field = Field::bit(61);
const FLUSH_RECEIVES: Field = Field::bit(62);
/// Flush code of work that failed through no fault of its own.
const FLUSH_GENERAL: u16 = 1;

/// States as the driver numbers them (kernel: `IRDMA_QP_STATE_*`).
mod state {
    pub const INVALID: u32 = 0;
    pub const IDLE: u32 = 1;
    pub const RTS: u32 = 2;
    pub const CLOSING: u32 = 3;
    pub const RTR: u32 = 4;
    pub const TERMINATE: u32 = 5;
    pub const ERROR: u32 = 6;
}

/// The driver's number of a state.
pub fn state_number(state: Option<QpState>) -> u32 {
    match state {
        None | Some(QpState::Reset) => state::INVALID,
        Some(QpState::Init) => state::IDLE,
        Some(QpState::ReadyToReceive) => state::RTR,
        Some(QpState::ReadyToSend) => state::RTS,
        Some(QpState::SendQueueDrained) => state::CLOSING,
        Some(QpState::Error) => state::ERROR,
    }
}

fn state_of(number: u32) -> Option<QpState> {
    match number {
        state::IDLE => Some(QpState::Init),
        state::RTS => Some(QpState::ReadyToSend),
        state::CLOSING => Some(QpState::SendQueueDrained),
        state::RTR => Some(QpState::ReadyToReceive),
        state::TERMINATE | state::ERROR => Some(QpState::Error),
        _ => None,
    }
}

/// Kinds as the driver numbers them (kernel: `IRDMA_QP_TYPE_*`).
fn service_of(kind: u32) -> Option<Service> {
    match kind {
        2 | 4 => Some(Service::UnreliableDatagram),
        3 => Some(Service::ReliableConnection),
        _ => None,
    }
}

impl Function {
    fn qp_context(&self, engine: &mut Engine<Host>, command: &Command) -> Result<Context, Failure> {
        let mut bytes = [0; CONTEXT_BYTES];
        engine.platform().read_at(self.id, command.word(16), &mut bytes)?;
        Ok(Context::new(&bytes, self.is_gen3()))
    }

    fn named_qp(&self, command: &Command) -> Id {
        self.object(command.header_number(NUMBER))
    }

    fn work_ring(&self, mapped: bool, (place, quanta): (u64, u32)) -> (Span<Backing>, u32) {
        let bytes = u64::from(quanta) * QUANTUM;
        let backing = Backing::ring(self.id, mapped, place, place as u32, bytes);
        (Span { backing, offset: 0 }, quanta)
    }

    /// `CREATE_QP`.
    pub(super) fn create_qp(&mut self, engine: &mut Engine<Host>, command: &Command) -> Result<(), Failure> {
        let context = self.qp_context(engine, command)?;
        let service = service_of(command.header_number(KIND)).ok_or(Failure::INVALID)?;
        let mapped = command.has(MAPPED);
        let (sq, sq_quanta) = self.work_ring(mapped, context.send_ring());
        let (rq, rq_quanta) = self.work_ring(mapped, context.receive_ring());
        let (send_cq, recv_cq) = context.completion_queues();
        let spec = QpSpec {
            pd: self.domain(engine, context.domain()),
            service,
            send_cq: self.object(send_cq),
            recv_cq: self.object(recv_cq),
            srq: context.shared_queue().map(|number| self.object(number)),
            sq,
            sq_quanta,
            rq,
            rq_quanta,
            rq_wqe_quanta: context.receive_quanta(),
            shadow: Span { backing: Backing::physical(self.id, command.word(40), SHADOW_BYTES), offset: 0 },
            completion_context: context.completion_context(),
            privileged: context.is_privileged().then(|| Backing::everything(self.id)),
        };
        let number = command.header_number(NUMBER);
        engine.create_qp(spec, Some(number))?;
        self.queue_pairs.insert(number, context.completion_context());
        self.change_qp(engine, command, &context)
    }

    /// `MODIFY_QP`: everything is in the context, each time.
    pub(super) fn modify_qp(&mut self, engine: &mut Engine<Host>, command: &Command) -> Result<(), Failure> {
        let context = self.qp_context(engine, command)?;
        self.change_qp(engine, command, &context)
    }

    fn change_qp(
        &mut self,
        engine: &mut Engine<Host>,
        command: &Command,
        context: &Context,
    ) -> Result<(), Failure> {
        let qp = self.named_qp(command);
        self.take_address(engine, context.mac());
        let asked = state_of(command.header_number(STATE));
        // What has failed does not come back by itself: it is destroyed and made anew.
        let failed = engine.qp_state(qp) == Some(QpState::Error) && asked != Some(QpState::Error);
        if failed {
            return Err(Failure::STATE);
        }
        let known = command.has(NEIGHBOUR_VALID).then(|| self.next_hop(context.neighbour()));
        // A state that it is in already is no change; nothing is begun again.
        let state = asked.filter(|_| engine.qp_state(qp) != asked);
        let pd = Some(self.domain(engine, context.domain()));
        let change = QpChange { state, pd, destination_mac: known, ..context.change() };
        Ok(engine.modify_qp(qp, &change)?)
    }

    /// `DESTROY_QP`.
    pub(super) fn destroy_qp(&mut self, engine: &mut Engine<Host>, command: &Command) -> Result<(), Failure> {
        engine.destroy_qp(self.named_qp(command))?;
        self.queue_pairs.remove(&command.header_number(NUMBER));
        Ok(())
    }

    /// `SUSPEND_QP` and `RESUME_QP`: the scheduler's; a suspended queue has nothing on its way,
    /// as everything happens within a call.
    pub(super) fn suspend_qp(&mut self, engine: &mut Engine<Host>, command: &Command) -> Result<(), Failure> {
        let known = engine.qp_state(self.named_qp(command)).is_some();
        if known { Ok(()) } else { Err(Failure::NOT_FOUND) }
    }

    /// `FLUSH_WQES` and `GEN_AE`.
    pub(super) fn flush(&mut self, engine: &mut Engine<Host>, command: &Command) -> Result<(), Failure> {
        let qp = self.named_qp(command);
        if command.has(MAKE_EVENT) {
            let source = match EVENT_SOURCE.get(command.word(8)) {
                1 => Source::ReceiveQueue,
                5 => Source::SendQueue,
                _ => Source::Unspecified,
            };
            let code = EVENT_CODE.get(command.word(8)) as u16;
            let event = AsyncEvent { subject: Subject::Qp(qp), code, source, wqe_index: None };
            engine.platform().events.push(event);
        }
        let given = command.has(CODES_GIVEN);
        let code = |field: Field| if given { field.get(command.word(16)) as u16 } else { FLUSH_GENERAL };
        let sends = command.has(FLUSH_SENDS).then(|| code(SEND_CODE));
        let receives = command.has(FLUSH_RECEIVES).then(|| code(RECEIVE_CODE));
        if sends.is_some() || receives.is_some() {
            engine.flush_qp(qp, sends, receives)?;
        }
        Ok(())
    }
}
