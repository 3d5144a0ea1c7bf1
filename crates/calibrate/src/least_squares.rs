//! Weighted least squares, with or without bounds, by the interior point solver Clarabel.

use clarabel::algebra::{CscMatrix, MatrixMathMut};
use clarabel::solver::{
    DefaultSettings, DefaultSolver, IPSolver, NonnegativeConeT, SolverStatus, SupportedConeT,
};

use crate::fit::FitError;

/// Bounds of a solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CoefficientBound {
    /// Anything.
    None,
    /// Nothing below 0.
    NonNegative,
}

/// Least squares over `N` unknowns; rows are weighted.
pub(crate) struct LeastSquares<'a, const N: usize> {
    /// Counts.
    pub(crate) rows: &'a [[f64; N]],
    /// What they are to add up to.
    pub(crate) targets: &'a [f64],
    /// How much each row matters.
    pub(crate) weights: &'a [f64],
    /// Where a term goes that the rows do not determine.
    pub(crate) prior: [f64; N],
    /// How strongly, against what the rows say of it.
    pub(crate) prior_weight: f64,
}

impl<const N: usize> LeastSquares<'_, N> {
    /// The unknowns x with the least Σ w (a x − b)² + pull Σ (x − prior)², each unknown in its own
    /// unit.
    ///
    /// Columns and targets are scaled to one, so that units do not matter: of a term that no row
    /// has, the prior comes out.
    pub(crate) fn solve(&self, bound: CoefficientBound) -> Result<[f64; N], FitError> {
        let mut scale = [0.0_f64; N];
        let (mut size, mut total) = (0.0, 0.0);
        for ((row, target), weight) in self.rows.iter().zip(self.targets).zip(self.weights) {
            for (scale, count) in scale.iter_mut().zip(row) {
                *scale += weight * count * count;
            }
            size += weight * target * target;
            total += weight;
        }
        if total <= 0.0 || !size.is_finite() || size <= 0.0 {
            return Err(FitError::Nothing);
        }
        let size = size.sqrt();
        let known = scale.map(|sum| sum > 0.0);
        let scale = scale.map(|sum| if sum > 0.0 { sum.sqrt() } else { 1.0 });

        let mut quadratic = [[0.0; N]; N];
        let mut linear = [0.0; N];
        for ((row, target), weight) in self.rows.iter().zip(self.targets).zip(self.weights) {
            for (i, line) in quadratic.iter_mut().enumerate() {
                let a = row[i] / scale[i];
                linear[i] -= weight * a * target / size;
                for (j, cell) in line.iter_mut().enumerate() {
                    *cell += weight * a * row[j] / scale[j];
                }
            }
        }
        for (i, line) in quadratic.iter_mut().enumerate() {
            line[i] += self.prior_weight;
            linear[i] -= self.prior_weight * self.prior[i] * scale[i] / size;
        }
        let solution = minimise(&quadratic, &linear, bound)?;
        let mut found = [0.0; N];
        for (i, value) in found.iter_mut().enumerate() {
            *value = if known[i] { solution[i] * size / scale[i] } else { self.prior[i] };
        }
        Ok(found)
    }
}

/// The x with the least ½ xᵀ P x + qᵀ x.
fn minimise<const N: usize>(
    p: &[[f64; N]; N],
    q: &[f64; N],
    bound: CoefficientBound,
) -> Result<[f64; N], FitError> {
    let p = CscMatrix::from(p).to_triu();
    let (a, b, cones): (_, Vec<f64>, Vec<SupportedConeT<f64>>) = match bound {
        CoefficientBound::NonNegative => {
            let mut a = CscMatrix::identity(N);
            a.negate();
            (a, vec![0.0; N], vec![NonnegativeConeT(N)])
        }
        CoefficientBound::None => (CscMatrix::zeros((0, N)), Vec::new(), Vec::new()),
    };
    // A small term matters as much as large ones, so the tolerances are far below the default. What
    // these cannot reach ends as "almost solved" by the default ones.
    let settings = DefaultSettings {
        verbose: false,
        tol_gap_abs: 1e-14,
        tol_gap_rel: 1e-14,
        tol_feas: 1e-12,
        reduced_tol_gap_abs: 1e-10,
        reduced_tol_gap_rel: 1e-10,
        reduced_tol_feas: 1e-8,
        ..DefaultSettings::default()
    };
    let mut solver = DefaultSolver::new(&p, q, &a, &b, &cones, settings)
        .map_err(|error| FitError::Solver { status: format!("{error:?}") })?;
    solver.solve();
    match solver.solution.status {
        SolverStatus::Solved | SolverStatus::AlmostSolved => {
            let mut found = [0.0; N];
            for (found, &value) in found.iter_mut().zip(&solver.solution.x) {
                // An interior point is a hair off the border that it stands for.
                *found = if bound == CoefficientBound::NonNegative && value < 1e-9 {
                    0.0
                } else {
                    value
                };
            }
            Ok(found)
        }
        status => Err(FitError::Solver { status: format!("{status:?}") }),
    }
}
