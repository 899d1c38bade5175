import { isIP } from 'node:net'
import type { Call, Caller, Layer, Message, Outcome } from '../mesh/call.ts'
import type { Signal } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import type { ConnectFailure, CrashLoop } from '../mesh/wire-shape.ts'
import type { GatewayError } from '../mesh/errors.ts'
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

export const transports = ['stdio', 'http', 'sse'] as const
export type Transport = (typeof transports)[number]

export const eras = ['legacy', 'modern'] as const
export type Era = (typeof eras)[number]

/**
 * The facts about a server's address that decide how a connection can fail. With several addresses, a fact holds when it
 * holds for any of them.
 */
export interface ServerAddress {
  /** Whether it is reached over TLS. */
  readonly isSecure: boolean
  /** Whether its host is a name, which has to be looked up. */
  readonly isNamed: boolean
}

/** Whether the host of a URL is a name, and no address. */
function isNamed(hostname: string): boolean {
  return isIP(hostname.replace(/^\[|\]$/g, '')) === 0
}

/** Returns the facts in a server's URLs that decide how connections to the server can fail. */
export function serverAddress(urls: readonly string[]): ServerAddress {
  const parsed = urls.map((url) => new URL(url))
  return {
    isSecure: parsed.some(({ protocol }) => protocol === 'https:'),
    isNamed: parsed.some(({ hostname }) => isNamed(hostname)),
  }
}

/** How a server is reached: some faults exist only for some of them. */
export interface ServerKind {
  readonly transport: Transport
  /** Undefined while nobody has asked it yet, and where it depends on the caller. */
  readonly era: Era | undefined
  /** Undefined for a process, and where no server in particular is meant. */
  readonly address?: ServerAddress | undefined
}

/** The surroundings that faults can use outside of the call that they hit. The server's own recovery undoes every effect. */
export interface FaultEnvironment {
  /** How a call reaches its server: one that speaks both eras is spoken to in that of the caller. */
  kindOf(call: Call): ServerKind | undefined
  /** The JSON Schema of a tool's structured content, as its server lists it; undefined for none. */
  outputSchemaOf(server: string, tool: string): unknown
  /** Signals the processes of a server; false when it has none. */
  signal(server: string, signal: NodeJS.Signals): boolean
  /** Ends the processes of a server, and each that is started while the loop lasts. Said again, it changes nothing. */
  crash(server: string, loop: CrashLoop): void
  /**
   * Has the gateway read bytes as if the processes of a server had written them to their standard output, between two lines
   * of their own; resolves once they are read, or `over` has aborted, from when on no more of them is. Undefined when it
   * has none.
   */
  write(server: string, bytes: Buffer, over: Signal): Promise<void> | undefined
  /** Makes the server take the caller's session for unknown; false when there is none. */
  loseSession(server: string, caller: Caller): boolean
  /** Delivers a message as if the server had sent it outside of any call. */
  tell(server: string, message: Message): void
  /** Has the server's lists fetched again. */
  refresh(server: string): void
  /** Sends a tool call to another server, past all policies; undefined when there is no such server. */
  sendTo(call: Call, server: string): Promise<Outcome> | undefined
  /**
   * Counts an attempt that does not come to its server in the call's record, as the server's own way would have; `sent`: whether it is
   * to count as sent. False when it would not have been counted either, as one for which no session could be opened is not.
   */
  beginAttempt(call: Call, sent: boolean): boolean
  /** Has the server suspected for an error that a fault made, as it would be for the same error of its own. */
  suspect(call: Call, error: GatewayError): void
  /** The error of a server that cannot be reached, in the words of its transport. */
  unreachable(call: Call): GatewayError
  /**
   * The error of a connection to the server that fails like this before anything is sent, `timeouts.connect` included;
   * undefined where none can, as where all certificates are trusted. Never rejects.
   */
  failToConnect(call: Call, failure: ConnectFailure): Promise<GatewayError> | undefined
  /** Reads a reply as the transport would have read it. */
  read(call: Call, reply: RawReply): Outcome
}

/** One firing of a fault at one call. */
export interface Injection {
  /** The fault's name in its plan. */
  readonly fault: string
  readonly side: Side
  readonly clock: Clock
  readonly faultEnvironment: FaultEnvironment
  /** Aborts when the fault ends or is disarmed, and when everything is killed: what it holds back goes on unharmed. */
  readonly released: Signal
  /** A number in [0, 1) that depends on the plan's seed, the fault, the call and `purpose` only. */
  draw(purpose: string): number
  /**
   * Waits; ends early when the injection is released or the call aborts. Says which; never rejects. The call is delayed by it,
   * and counts as sent meanwhile unless `sent` is false.
   */
  pause(ms: Millis, call: Call, sent?: boolean): Promise<'over' | 'released' | 'aborted'>
  /** The call waits for something else on behalf of the fault: it is delayed until that is settled. */
  delaying<Settled>(call: Call, settled: Promise<Settled>): Promise<Settled>
  /** The agent will wait so much longer for the bytes of its reply, in milliseconds, when the call is over. */
  delayed(ms: Millis): void
  /** It counts against `maxConcurrent` until then, although the call is over before. */
  keepsPlace(until: Promise<void>): void
  /** Puts a raw reply in place of the server's: read by the gateway, or (side client) written to the agent. */
  reply(call: Call, raw: RawReply): Outcome
  /** Breaks off the connection of the reply: the gateway's to the server, or (side client) the agent's to us. */
  disconnect(call: Call, message: string): Outcome
  /** The answered outcome with another result; it counts as corrupted when it reaches the agent unnoticed. */
  change(outcome: Outcome, result: unknown): Outcome
  /** Says in the journal what exactly was done, such as a delay or a path. */
  note(facts: Readonly<Record<string, unknown>>): void
  /** Says in the journal that there was nothing to do at such a call; it has to go on unharmed. */
  notApplicable(why: string): void
  /** Says in the journal that the call, or the fault, was over before it took effect; what there is has to pass unharmed. */
  notReached(why: string): void
  /** Returns the state that this fault keeps under `key` from call to call while it is armed; `create` makes a missing state. */
  memory<State extends object>(key: string, create: () => State): State
}

/** Why a fault that changes replies found none. */
export const NO_REPLY = 'the call failed by itself: there is no reply'

/** Why a fault that is over does nothing to a reply that comes later. */
export const ENDED = 'it had ended when the reply came'

/** The chapters of the catalogue, with their titles, in its order. */
export const families = {
  registry: 'What servers list',
  route: 'Where calls go',
  request: 'Requests',
  connection: 'The connection',
  process: 'The process of a server',
  handshake: 'Handshakes and pings',
  http: 'HTTP',
  rpc: 'JSON-RPC',
  result: 'Results',
  stream: 'Streams',
  session: 'Sessions',
  auth: 'Authorization',
  limit: 'Limits',
  composite: 'Several calls together',
} as const

export type Family = keyof typeof families

/** The fields of a fault that a command line can set besides the common fields. `status`: of HTTP; `fields`: names of fields. */
export interface OptionValues {
  readonly delay: Millis
  readonly retryAfter: Millis
  readonly status: number
  readonly fields: readonly string[]
}

/** The field of a fault that an option of `breakwater chaos inject` sets. */
export interface OptionField<Value> {
  readonly sets: string
  /** Returns the content of the field; without `as`, the field gets the option's value itself. */
  readonly as?: (value: Value) => unknown
}

/** The options that a type takes. */
export type FaultOptions = { readonly [Name in keyof OptionValues]?: OptionField<OptionValues[Name]> }

/** The formats of plans that are read besides our own. */
export type ForeignFormat = 'mcp-chaos' | 'chaos-monkey'

/** Some values only, and why a fault cannot work with any other; `{}` in the words stands for that one. */
export interface Only<Value extends string> {
  readonly only: readonly Value[]
  readonly otherwise: string
}

/** A kind of fault: one entry in the registry, which says all about it that anything else has to know. */
export interface FaultType<Config> {
  /** Its own fields, each with a description; those that all faults share are not its business. */
  readonly schema: Schema<Config>
  /** Its chapter in the catalogue. */
  readonly family: Family
  /** The effect of the fault, in one line. */
  readonly about: string
  /** The purpose of the fault: one sentence. */
  readonly use: string
  /** The agent's view of the fault with the default policies. */
  readonly seen: string
  /** The policies that contain it, by their names in a config, and how; or what else does, or why nothing can. */
  readonly containedBy: { readonly policies: readonly string[]; readonly how: string }
  /** Methods that it can hit; `tools/call` unless it says otherwise. */
  readonly methods?: readonly string[]
  /** Sides on which it makes sense. */
  readonly sides: readonly Side[]
  /** Transports of servers that it works with (side upstream); all unless it says otherwise. */
  readonly transports?: Only<Transport>
  /** Eras of servers that it works with (side upstream); all unless it says otherwise. */
  readonly eras?: Only<Era>
  /** The server that calls are sent to in place of their own; none unless it says otherwise. */
  sendsTo?(config: Config): string | undefined
  /** Why it cannot work with such a server, where `transports` and `eras` cannot say it; undefined when it can. */
  refuses?(kind: ServerKind): string | undefined
  /**
   * Whether a call that it hits runs once at most, and nobody is misled to repeat a call that has run. Such a fault answers
   * in place of the server, or sends the call late. With all other types, the answer may be lost or bent, or the call
   * repeated, once the call has run.
   */
  readonly runsAsAsked?: true
  /**
   * Whether a call that it hits never reaches the server: it hits calls of all tools, also those that write and those that are in no list (as
   * the fault itself may bring about), without `allowWrites`.
   */
  readonly withholds?: true
  /** Whether it hits a call that was not drawn, for what it did to an earlier one; no call unless it says otherwise. */
  catches?(call: Call, injections: Pick<Injection, 'memory'>): boolean
  /** The types of foreign plans that mean it; none unless it says otherwise. */
  readonly aliases?: Readonly<Partial<Record<ForeignFormat, readonly string[]>>>
  /** Options of the command line that set a field of another name; one that is called like a field sets that. */
  readonly options?: FaultOptions
  /** An entry of a plan without its `type`, such as `config/chaos.yaml` has. */
  readonly example: Readonly<Record<string, unknown>> & { readonly name: string }
  /**
   * The fault itself: a layer that is put around the rest of the call's way. It calls `next` where the server is to
   * get the call, and never throws for what the server does.
   */
  layer(config: Config, injection: Injection): Layer
}

/** Why a fault of this type cannot work with such a server; undefined when it can. */
export function refusalOf(type: FaultType<unknown>, kind: ServerKind): string | undefined {
  const { transport, era } = kind
  const without = <Value extends string>(limit: Only<Value> | undefined, value: Value | undefined) =>
    limit === undefined || value === undefined || limit.only.includes(value)
      ? undefined
      : limit.otherwise.replaceAll('{}', value)
  return without(type.transports, transport) ?? without(type.eras, era) ?? type.refuses?.(kind)
}

/** The `result` of an answered outcome that is no JSON-RPC error; undefined otherwise. */
export function resultIn(outcome: Outcome): Readonly<Record<string, unknown>> | undefined {
  if (outcome.kind !== 'answered') return undefined
  const { result } = outcome.result.value as { result?: unknown }
  return typeof result === 'object' && result !== null ? (result as Record<string, unknown>) : undefined
}
