import { type Stage, STRICT_TOKEN } from '../stage.ts'
import type { Place } from './peers.ts'

/** Returns an endpoint of the open gateway: of one server, or of all. */
export function at({ open }: Stage, server?: string): Place {
  return { address: new URL(open.data).host, path: new URL(open.mcp(server)).pathname }
}

export function atStrict({ strict }: Stage, server?: string): Place {
  return { address: new URL(strict.data).host, path: new URL(strict.mcp(server)).pathname }
}

export const bearer = (token: string = STRICT_TOKEN) => ['authorization', `Bearer ${token}`] as const
