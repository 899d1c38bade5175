import type { Call } from '../../mesh/call.ts'
import type { Shot } from '../fault.ts'

/** Why a fault that is a status cannot work. */
export const NO_STATUS = 'stdio has no HTTP status'

/** Whether there is HTTP where the shot goes; towards agents it always is. */
export function speaksHttp(call: Call, { side, world }: Shot): boolean {
  return side === 'client' || world.kindOf(call.server)?.transport !== 'stdio'
}
