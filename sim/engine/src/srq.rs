//! Shared receive queues.

use crate::engine::Engine;
use crate::event::{AsyncEvent, Source, Subject, code};
use crate::format::word;
use crate::platform::Platform;
use crate::qp::{check_receive_size, check_ring};
use crate::ring::WorkRing;
use crate::spec::{EngineError, PdId, Span, SrqId, SrqSpec};

/// Most quanta of a shared ring.
const MAX_QUANTA: u32 = 1 << 18;

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq<B> {
    pub(crate) pd: PdId,
    pub(crate) ring: WorkRing<B>,
    pub(crate) wqe_quanta: u32,
    shadow: Span<B>,
    /// Receives left below which an event is due; 0: none wanted.
    limit: u32,
}

impl<P: Platform> Engine<P> {
    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// Unknown domain; impossible ring size; the number is taken, or none is left.
    pub fn create_srq(
        &mut self,
        spec: SrqSpec<P::Backing>,
        number: Option<u32>,
    ) -> Result<SrqId, EngineError> {
        if !self.pds.contains(spec.pd) {
            return Err(EngineError::NotFound);
        }
        check_ring(&spec.ring, spec.quanta, MAX_QUANTA)?;
        check_receive_size(spec.quanta, spec.wqe_quanta)?;
        let srq = Srq {
            pd: spec.pd,
            ring: WorkRing::new(spec.ring, spec.quanta),
            wqe_quanta: spec.wqe_quanta,
            shadow: spec.shadow,
            limit: 0,
        };
        self.srqs.insert(spec.pd.function, number, srq)
    }

    /// Asks for one event when fewer than `limit` receives are left; 0 asks for none.
    ///
    /// # Errors
    /// Unknown queue; a limit above its size.
    pub fn modify_srq_limit(&mut self, srq: SrqId, limit: u32) -> Result<(), EngineError> {
        let queue = self.srqs.get_mut(srq).ok_or(EngineError::NotFound)?;
        if limit > queue.ring.quanta() / queue.wqe_quanta {
            return Err(EngineError::Invalid);
        }
        queue.limit = limit;
        self.check_srq_limit(srq);
        Ok(())
    }

    /// The limit asked for, 0 after its event.
    ///
    /// # Errors
    /// Unknown queue.
    pub fn query_srq_limit(&self, srq: SrqId) -> Result<u32, EngineError> {
        self.srqs.get(srq).map(|queue| queue.limit).ok_or(EngineError::NotFound)
    }

    /// Takes the queue away.
    ///
    /// # Errors
    /// Unknown queue; a queue pair still uses it.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), EngineError> {
        if !self.srqs.contains(srq) {
            return Err(EngineError::NotFound);
        }
        if self.qps.values().any(|qp| qp.srq == Some(srq)) {
            return Err(EngineError::Busy);
        }
        self.srqs.remove(srq);
        Ok(())
    }

    /// Reports a queue that has run below its limit, once per limit.
    pub(crate) fn check_srq_limit(&mut self, srq: SrqId) {
        let Some(queue) = self.srqs.get_mut(srq) else { return };
        if queue.limit == 0 {
            return;
        }
        let mut producer = [0; 8];
        if self.platform.read(&queue.shadow.backing, queue.shadow.offset, &mut producer).is_err() {
            // The ring lies in the same memory: the next receive finds it gone.
            return;
        }
        let size = queue.ring.quanta() / queue.wqe_quanta;
        let consumer = queue.ring.position() / queue.wqe_quanta;
        let left = ((word(&producer, 0) % u64::from(size)) as u32 + size - consumer) % size;
        if left < queue.limit {
            queue.limit = 0;
            self.platform.async_event(AsyncEvent {
                subject: Subject::Srq(srq),
                code: code::SRQ_LIMIT,
                source: Source::Unspecified,
                wqe_index: None,
            });
        }
    }
}
