/** A disabled recorder. */
export const noRecorder = {
  open: undefined,
  begin: () => undefined,
  attempt: () => () => undefined,
  end: () => undefined,
  close: () => Promise.resolve(),
}
