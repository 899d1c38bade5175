import { bandwidth, slowDrip } from './bandwidth.ts'
import { halfOpen } from './connection-half-open.ts'
import { refused } from './connection-refused.ts'
import { reset } from './connection-reset.ts'
import { flap } from './flap.ts'
import { latency } from './latency.ts'

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
