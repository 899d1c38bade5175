import type { Call, Caller, Layer, Message, Outcome } from '../mesh/call.ts'
import type { Signal } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import type { Schema } from '../mesh/policy.ts'

/** Below all policies, where it tests the gateway, or above all of them, where it tests the agent. */
export type Side = 'upstream' | 'client'

/** A whole HTTP reply, as a server would have written it. */
export interface RawReply {
  readonly status: number
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** How a server is reached: some faults exist only for some of them. */
export interface ServerKind {
  readonly transport: 'stdio' | 'http' | 'sse'
  /** Undefined while nobody has asked it yet, and where it depends on the caller. */
  readonly era: 'legacy' | 'modern' | undefined
}

/** What faults can do outside of the call that they hit. Everything is undone by the server's own recovery. */
export interface World {
  /** How a call reaches its server: one that speaks both eras is spoken to in that of the caller. */
  kindOf(call: Call): ServerKind | undefined
  /** The JSON Schema of a tool's structured content, as its server lists it; undefined for none. */
  outputSchemaOf(server: string, tool: string): unknown
  /** Ends the process of a server; false when it has none. */
  kill(server: string, signal: NodeJS.Signals): boolean
  /** Makes the server take the caller's session for unknown; false when there is none. */
  loseSession(server: string, caller: Caller): boolean
  /** Delivers a message as if the server had sent it outside of any call. */
  tell(server: string, message: Message): void
  /** Has the server's lists fetched again. */
  refresh(server: string): void
  /** Sends a tool call to another server, past all policies; undefined when there is no such server. */
  sendTo(call: Call, server: string): Promise<Outcome> | undefined
  /** Reads a reply as the transport would have read it. */
  read(call: Call, reply: RawReply): Outcome
}

/** One firing of a fault at one call. */
export interface Shot {
  /** The fault's name in its plan. */
  readonly fault: string
  readonly side: Side
  readonly clock: Clock
  readonly world: World
  /** Aborts when the fault ends or is disarmed, and when everything is killed: what it holds back goes on unharmed. */
  readonly released: Signal
  /** A number in [0, 1) that depends on the plan's seed, the fault, the call and `purpose` only. */
  draw(purpose: string): number
  /** Waits; ends early when the shot is released or the call aborts. Says which; never rejects. */
  pause(ms: Millis, call: Call): Promise<'over' | 'released' | 'aborted'>
  /** Puts a raw reply in place of the server's: read by the gateway, or (side client) written to the agent. */
  reply(call: Call, raw: RawReply): Outcome
  /** Breaks off the connection of the reply: the gateway's to the server, or (side client) the agent's to us. */
  disconnect(call: Call, message: string): Outcome
  /** The answered outcome with another result; it counts as corrupted when it reaches the agent unnoticed. */
  change(outcome: Outcome, result: unknown): Outcome
  /** Says in the journal what exactly was done, such as a delay or a path. */
  note(facts: Readonly<Record<string, unknown>>): void
  /** Says in the journal that there was nothing to do here; the call has to go on unharmed. */
  notApplicable(why: string): void
  /** What this fault remembers from call to call for as long as it is armed. */
  memory<State extends object>(key: string, create: () => State): State
}

/** Why a fault that is over does nothing to a reply that comes later. */
export const ENDED = 'it had ended when the reply came'

/** A kind of fault: one entry in the registry. */
export interface FaultType<Config> {
  /** Its own fields; those that all faults share are not its business. */
  readonly schema: Schema<Config>
  /** What it does, in one line. */
  readonly about: string
  /** Methods that it can hit; `tools/call` unless it says otherwise. */
  readonly methods?: readonly string[]
  /** Sides on which it makes sense; both unless it says otherwise. */
  readonly sides?: readonly Side[]
  /** Why it cannot work with such a server; undefined when it can. */
  refuses?(kind: ServerKind): string | undefined
  /**
   * The fault itself: a layer that is put around the rest of the call's way. It calls `next` where the server is to
   * get the call, and never throws for what the server does.
   */
  layer(config: Config, shot: Shot): Layer
}

/** The `result` of an answered outcome that is no JSON-RPC error; undefined otherwise. */
export function resultIn(outcome: Outcome): Readonly<Record<string, unknown>> | undefined {
  if (outcome.kind !== 'answered') return undefined
  const { result } = outcome.result.value as { result?: unknown }
  return typeof result === 'object' && result !== null ? (result as Record<string, unknown>) : undefined
}
