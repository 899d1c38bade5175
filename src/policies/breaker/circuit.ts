import { EventEmitter } from 'node:events'
import CircuitBreaker from 'opossum'

/** Told of each change of state. */
export interface CircuitEvents {
  opened(): void
  closed(): void
}

/** A state machine that is not at rest. */
export interface Circuit {
  open(): void
  close(): void
  /** Fires what a half-open circuit waits for. Without a failure it closes, with one it opens again. */
  fire(): (failure: string | undefined) => void
}

/** The settings for which there is no type: the state to begin in. */
type Options = CircuitBreaker.Options<[Promise<void>]> & {
  readonly state: { readonly closed: boolean; readonly halfOpen: boolean }
}

const rotation = new EventEmitter().setMaxListeners(0)

/**
 * Statistics that all circuits share, since nobody reads them: our windows decide. A Status of its own would
 * cost every circuit 2.5 KB, and a listener that only `shutdown` takes away again.
 */
const status = CircuitBreaker.newStatus({
  rollingCountBuckets: 1,
  rollingPercentilesEnabled: false,
  enableSnapshots: false,
  rotateBucketController: rotation,
})

/**
 * opossum, which has the states and decides on a half-open one. Made at the first trouble and dropped at
 * recovery: a circuit takes 4 KB, and firing it for each call of a closed breaker, where it could only count
 * what our windows count, 1.8 µs. Holds no timer and nothing global, so that dropping it is enough.
 */
export function createCircuit(from: 'closed' | 'half_open', { opened, closed }: CircuitEvents): Circuit {
  // A fresh object each: opossum writes into it.
  const options: Options = {
    name: 'breaker',
    timeout: false,
    // It opens by itself when a half-open circuit fails, and at no other time.
    errorThresholdPercentage: 100,
    volumeThreshold: Number.MAX_SAFE_INTEGER,
    resetTimeout: 2 ** 31 - 1,
    rollingPercentilesEnabled: false,
    enableSnapshots: false,
    rotateBucketController: rotation,
    status,
    state: { closed: from === 'closed', halfOpen: from === 'half_open' },
  }
  const circuit = new CircuitBreaker((decision: Promise<void>) => decision, options)
  // Its reset timer hangs on this event: when to go half-open is decided on the mesh's clock.
  circuit.removeAllListeners('open')
  circuit.on('open', opened)
  circuit.on('close', closed)
  return {
    open: () => circuit.open(),
    close: () => circuit.close(),
    fire() {
      // The shared statistics keep a latency of each, until they rotate.
      rotation.emit('rotate')
      let decide: (failure: string | undefined) => void = () => undefined
      const decision = new Promise<void>((resolve, reject) => {
        decide = (failure) => {
          if (failure === undefined) return resolve()
          // opossum hears of a failure only after the caller has: until then it would be neither open nor probed.
          circuit.open()
          reject(new Error(failure))
        }
      })
      circuit.fire(decision).catch(() => undefined)
      return (failure) => decide(failure)
    },
  }
}
