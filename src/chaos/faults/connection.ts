import { bandwidth, slowDrip } from './connection/bandwidth.ts'
import { flap } from './connection/flap.ts'
import { halfOpen } from './connection/half-open.ts'
import { latency } from './connection/latency.ts'
import { refused } from './connection/refused.ts'
import { reset } from './connection/reset.ts'

/** Faults of the way between the gateway and a server, or an agent and the gateway. */
export const connectionFaults = {
  'conn.refused': refused,
  'conn.reset': reset,
  'conn.half_open': halfOpen,
  'conn.latency': latency,
  'conn.bandwidth': bandwidth,
  'conn.slow_drip': slowDrip,
  'conn.flap': flap,
}
