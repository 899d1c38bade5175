import type { FaultType } from '../fault.ts'
import { authFaults } from './auth.ts'
import { compositeFaults } from './composite.ts'
import { connectionFaults } from './connection.ts'
import { descriptionFaults } from './descriptions.ts'
import { handshakeFaults } from './handshake.ts'
import { httpFaults } from './http.ts'
import { limitFaults } from './limit.ts'
import { processFaults } from './process.ts'
import { registryFaults } from './registry.ts'
import { requestFaults } from './request.ts'
import { resultFaults } from './result.ts'
import { routeFaults } from './route.ts'
import { rpcFaults } from './rpc.ts'
import { serverRequestFaults } from './server-requests.ts'
import { sessionFaults } from './session.ts'
import { standingStreamFaults } from './standing-streams.ts'
import { streamFaults } from './stream.ts'

/** Types of faults, by their `type` in a plan. */
export type FaultRegistry = Readonly<Record<string, FaultType<unknown>>>

/** All types of faults: a new family adds one line. */
export const faults: FaultRegistry = {
  ...registryFaults,
  ...descriptionFaults,
  ...routeFaults,
  ...requestFaults,
  ...connectionFaults,
  ...processFaults,
  ...handshakeFaults,
  ...httpFaults,
  ...rpcFaults,
  ...resultFaults,
  ...streamFaults,
  ...standingStreamFaults,
  ...serverRequestFaults,
  ...sessionFaults,
  ...authFaults,
  ...limitFaults,
  ...compositeFaults,
}
