//! The price at which a slice could be emptied, whatever its counters say.

use ramslice_types::{MachineState, Price, PriceParameter, Slice};

/// What emptying costs by the counters, without the offset for what seems unreclaimable.
pub(super) fn price(machine: &MachineState, slice: &Slice) -> Price {
    let offset = machine.price_parameters.get(&PriceParameter::Unreclaimable);
    match (slice.finite_price(), offset) {
        (None, Some(&offset)) if slice.price > offset => slice.price - offset,
        _ => slice.price,
    }
}
