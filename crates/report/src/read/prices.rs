//! The model that `ramslice-lab calibrate` fits to saved samples, for a report: what it says of
//! each.

use ramslice_calibrate::{
    ModelCoefficients, SampleSet, SamplesFile, check_everyday, check_samples, fit, refit, thesis,
};
use serde_json::Value;

use crate::{PriceSamples, PricedSlice};

/// The samples of `document` with what a fitted model says of them, or why there is none.
pub(super) fn fitted(name: &str, mut samples: Vec<PricedSlice>, document: Value) -> PriceSamples {
    let mut run = PriceSamples {
        name: name.to_owned(),
        in_force: String::new(),
        unfitted: None,
        samples: Vec::new(),
    };
    match serde_json::from_value::<SamplesFile>(document) {
        Ok(SamplesFile { samples: saved, .. }) => {
            let in_force = ModelCoefficients::of_parameters(&saved.parameters);
            if in_force == thesis() {
                "model B of the thesis, the kernel's defaults".clone_into(&mut run.in_force);
            }
            match model(&saved, &in_force) {
                Ok(model) => {
                    for (priced, sample) in samples.iter_mut().zip(&saved.samples) {
                        priced.fitted_cycles = Some(100.0 * model.price(&sample.operations));
                    }
                }
                Err(why) => run.unfitted = Some(why),
            }
        }
        Err(error) => run.unfitted = Some(error.to_string()),
    }
    PriceSamples { samples, ..run }
}

/// In whole numbers, as the kernel would use it.
fn model(saved: &SampleSet, in_force: &ModelCoefficients) -> Result<ModelCoefficients, String> {
    let (artificial, gathered) = (saved.artificial(), saved.everyday());
    let fitted = if artificial.is_empty() && !gathered.is_empty() {
        check_everyday(&gathered).map_err(|refusal| refusal.to_string())?;
        refit(&gathered, in_force)
    } else {
        check_samples(&artificial).map_err(|refusal| refusal.to_string())?;
        fit(&artificial)
    };
    fitted.map(|fitted| fitted.rounded).map_err(|error| error.to_string())
}
