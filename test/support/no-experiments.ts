/** A gateway without experiments. */
export const noExperiments = { armsIn: () => ({}), assignIn: () => undefined, end: () => undefined }
