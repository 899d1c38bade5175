/** A recorder that is off. */
export const noRecorder = {
  begin: () => undefined,
  attempt: () => () => undefined,
  end: () => undefined,
  close: () => Promise.resolve(),
}
