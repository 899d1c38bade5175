import type { FaultType } from '../fault.ts'
import { authFaults } from './auth.ts'
import { compositeFaults } from './composite.ts'
import { connectionFaults } from './connection.ts'
import { httpFaults } from './http.ts'
import { limitFaults } from './limit.ts'
import { processFaults } from './process.ts'
import { registryFaults } from './registry.ts'
import { resultFaults } from './result.ts'
import { routeFaults } from './route.ts'
import { rpcFaults } from './rpc.ts'
import { sessionFaults } from './session.ts'
import { streamFaults } from './stream.ts'

/** Kinds of faults, by their `type` in a plan. */
export type FaultRegistry = Readonly<Record<string, FaultType<unknown>>>

/** All kinds of faults: a new family is one line. */
export const faults: FaultRegistry = {
  ...registryFaults,
  ...routeFaults,
  ...connectionFaults,
  ...processFaults,
  ...httpFaults,
  ...rpcFaults,
  ...resultFaults,
  ...streamFaults,
  ...sessionFaults,
  ...authFaults,
  ...limitFaults,
  ...compositeFaults,
}
