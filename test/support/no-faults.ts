import type { Layer } from '../../src/mesh/call.ts'

const pass: Layer = (next) => next

/** A chaos mesh that does nothing. */
export const noFaults = { client: pass, upstream: pass, discovery: pass }
export const noChaos = {
  layers: noFaults,
  heldBy: () => [],
  faults: { live: false, corruptions: { any: false }, account: () => [] },
  clientFaults: () => undefined,
}
