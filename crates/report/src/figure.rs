//! A figure: drawn, or with what it lacks; and all figures of a report.

use crate::chart::Medium;
use crate::csv::FigureData;
use crate::figures::{
    bitmaps, energy, footprint, fullness, giveback, hit_ratio_watermarks, hit_ratios, kept_on,
    latency, net, occupation, operations, prices, repair, residuals, rest, shares, sizes, slices,
    statistics, statistics_means, utilisation,
};
use crate::report_data::ReportData;

type DrawFunction = Box<dyn Fn(Medium) -> String>;

/// What a figure shows.
pub(crate) enum FigureContent {
    /// A drawing and its data.
    Drawn { draw: DrawFunction, data: Box<dyn FigureData> },
    /// Nothing, because something is missing.
    Missing { what: String, how: String },
}

/// One figure.
pub struct ReportFigure {
    /// Names its files and its place on the page: letters, digits and hyphens.
    pub id: String,
    /// The heading.
    pub title: String,
    /// What it shows and how to read it.
    pub caption: String,
    pub(crate) content: FigureContent,
}

impl ReportFigure {
    pub(crate) fn drawn(
        id: impl Into<String>,
        title: impl Into<String>,
        caption: impl Into<String>,
        data: impl FigureData + 'static,
        draw: impl Fn(Medium) -> String + 'static,
    ) -> Self {
        let content = FigureContent::Drawn { draw: Box::new(draw), data: Box::new(data) };
        Self { id: id.into(), title: title.into(), caption: caption.into(), content }
    }

    pub(crate) fn missing(
        id: &str,
        title: &str,
        what: impl Into<String>,
        how: impl Into<String>,
    ) -> Self {
        let content = FigureContent::Missing { what: what.into(), how: how.into() };
        Self { id: id.to_owned(), title: title.to_owned(), caption: String::new(), content }
    }

    /// Its data; nothing if it is not drawn.
    pub fn data(&self) -> Option<&dyn FigureData> {
        match &self.content {
            FigureContent::Drawn { data, .. } => Some(&**data),
            FigureContent::Missing { .. } => None,
        }
    }

    /// The same as text.
    #[cfg(test)]
    pub(crate) fn csv(&self) -> Option<String> {
        let mut text = Vec::new();
        self.data()?.write(&mut text).unwrap();
        Some(String::from_utf8(text).unwrap())
    }

    /// What it lacks, and how to get it; nothing if it is drawn.
    pub fn lacks(&self) -> Option<(&str, &str)> {
        match &self.content {
            FigureContent::Drawn { .. } => None,
            FigureContent::Missing { what, how } => Some((what, how)),
        }
    }

    /// The drawing as SVG; its looks are in the style sheet.
    pub(crate) fn svg(&self, look: Medium) -> Option<String> {
        match &self.content {
            FigureContent::Drawn { draw, .. } => Some(draw(look)),
            FigureContent::Missing { .. } => None,
        }
    }
}

/// All figures, in the order of the page.
pub fn figures(runs: &ReportData) -> Vec<ReportFigure> {
    let mut all = utilisation(runs);
    all.extend(occupation(runs));
    // Only guests that report have it.
    all.extend(giveback(runs));
    // Only recordings with statistics have these.
    all.extend(statistics(runs));
    all.extend(statistics_means(runs));
    // Only kernels that count look-ups, and daemons whose watermarks follow them.
    all.extend(hit_ratios(runs));
    all.extend(hit_ratio_watermarks(runs));
    all.extend(slices(runs));
    // These have no placeholder: a census is optional.
    all.extend(bitmaps(runs));
    all.extend(fullness(runs));
    all.extend(footprint(runs));
    all.extend(kept_on(runs));
    all.extend(shares(runs));
    // Emptied slices are optional, too.
    all.extend(repair(runs));
    all.extend(energy(runs));
    all.extend(net(runs));
    // Studies of sizes are optional.
    all.extend(sizes(runs));
    // So are results of cold memory.
    all.extend(rest(runs));
    all.extend(latency(runs));
    all.extend(prices(runs));
    all.extend(residuals(runs));
    all.extend(operations(runs));
    // What can be seen comes first, then what it takes to see more.
    all.sort_by_key(|figure| figure.lacks().is_some());
    all
}
