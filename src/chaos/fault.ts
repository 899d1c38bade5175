import { isIP } from 'node:net'
import type { Call, Caller, Layer, Message, Outcome } from '../mesh/call.ts'
import type { Signal } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import type { ConnectFailure, CrashLoop } from '../mesh/wire-shape.ts'
import type { GatewayError } from '../mesh/errors.ts'
import type { Schema } from '../mesh/policy.ts'

/** Below all policies, to test the gateway, or above all policies, to test the agent. */
export type Side = 'upstream' | 'client'

/** A whole HTTP reply, as written by a server. */
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
 * The facts about a server's address that decide how a connection can fail. With several addresses, a fact is true when
 * true for any of them.
 */
export interface ServerAddress {
  readonly isSecure: boolean
  /** Whether its host is a name, which needs a DNS lookup. */
  readonly isNamed: boolean
}

/** Whether the host of a URL is a name, not an address. */
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

/** How to reach a server: some faults need certain kinds of servers. */
export interface ServerKind {
  readonly transport: Transport
  /** Undefined until first contact with the server, and where the era depends on the caller. */
  readonly era: Era | undefined
  /** Undefined for a process, and where no particular server is meant. */
  readonly address?: ServerAddress | undefined
}

/** Effects available to faults outside of the hit call. The server's own recovery undoes every effect. */
export interface FaultEnvironment {
  /** How a call reaches its server: with both eras, the caller's era is used. */
  kindOf(call: Call): ServerKind | undefined
  /** The JSON Schema of a tool's structured content, from its server's list; undefined for none. */
  outputSchemaOf(server: string, tool: string): unknown
  /** Signals the processes of a server; false when there are none. */
  signal(server: string, signal: NodeJS.Signals): boolean
  /** Ends the processes of a server, and each process started during the loop. Repeating changes nothing. */
  crash(server: string, loop: CrashLoop): void
  /**
   * Has the gateway read bytes as if the server's processes had written them to their standard output, between two of
   * their own lines. Resolves once the bytes are read, or when `over` aborts, which stops reading. Undefined without
   * processes.
   */
  write(server: string, bytes: Buffer, over: Signal): Promise<void> | undefined
  /** Makes the server treat the caller's session as unknown; false when there is none. */
  loseSession(server: string, caller: Caller): boolean
  /** Delivers a message as if the server had sent it outside of any call. */
  tell(server: string, message: Message): void
  refresh(server: string): void
  /** Sends a tool call to another server, past all policies; undefined when there is no such server. */
  sendTo(call: Call, server: string): Promise<Outcome> | undefined
  /**
   * Counts an attempt that does not reach its server in the call's record, as the server's own way would; `sent`:
   * whether it counts as sent. False when the server's way would not count it either, such as without a session.
   */
  beginAttempt(call: Call, sent: boolean): boolean
  /** Suspects the server for an error made by a fault, as for the same error of the server itself. */
  suspect(call: Call, error: GatewayError): void
  /** The error of an unreachable server, in the words of its transport. */
  unreachable(call: Call): GatewayError
  /**
   * Returns the error of a connection that fails like this before sending anything, `timeouts.connect` included;
   * undefined where no such failure can happen, such as when all certificates are trusted. Never rejects.
   */
  failToConnect(call: Call, failure: ConnectFailure): Promise<GatewayError> | undefined
  /** Reads a reply as the transport would. */
  read(call: Call, reply: RawReply): Outcome
}

/** A firing of a fault at a call. */
export interface Injection {
  readonly fault: string
  readonly side: Side
  readonly clock: Clock
  readonly faultEnvironment: FaultEnvironment
  /** Aborts when the fault ends or is disarmed, and on a kill: held calls then continue unharmed. */
  readonly released: Signal
  /** Returns a number in [0, 1) that depends only on the plan's seed, the fault, the call and `purpose`. */
  draw(purpose: string): number
  /**
   * Waits; ends early when the injection is released or the call aborts. Returns the cause; never rejects. Counts as a
   * delay of the call, and as sent meanwhile unless `sent` is false.
   */
  pause(ms: Millis, call: Call, sent?: boolean): Promise<'over' | 'released' | 'aborted'>
  /** Delays the call until `settled` settles, for the fault. */
  delaying<Settled>(call: Call, settled: Promise<Settled>): Promise<Settled>
  /** The agent will wait this much longer for the bytes of its reply, in milliseconds, after the call. */
  delayed(ms: Millis): void
  /** Counts against `maxConcurrent` until then, although the call ends earlier. */
  keepsPlace(until: Promise<void>): void
  /** Replaces the server's reply with a raw reply: read by the gateway, or (side client) written to the agent. */
  reply(call: Call, raw: RawReply): Outcome
  /** Breaks the connection of the reply: the gateway's to the server, or (side client) the agent's to the gateway. */
  disconnect(call: Call, message: string): Outcome
  /** Returns the outcome with another result; counts as corrupted when it reaches the agent unnoticed. */
  change(outcome: Outcome, result: unknown): Outcome
  /** Journals the exact effect, such as a delay or a path. */
  note(facts: Readonly<Record<string, unknown>>): void
  /** Journals that there was nothing to do at such a call; the call has to go on unharmed. */
  notApplicable(why: string): void
  /** Journals that the call, or the fault, was over before any effect; a reply has to pass unharmed. */
  notReached(why: string): void
  /** Returns the fault's state under `key`, kept from call to call while armed; `create` makes a missing state. */
  memory<State extends object>(key: string, create: () => State): State
}

export const NO_REPLY = 'the call failed by itself: there is no reply'

export const ENDED = 'it had ended when the reply came'

/** The chapters of the catalogue, with their titles, in its order. */
export const families = {
  registry: 'Lists of servers',
  route: 'Routing of calls',
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

/** Fields a command line can set besides the common fields. `status`: of HTTP; `fields`: names of fields. */
export interface OptionValues {
  readonly delay: Millis
  readonly retryAfter: Millis
  readonly status: number
  readonly fields: readonly string[]
}

/** A fault's field set by an option of `breakwater chaos inject`. */
export interface OptionField<Value> {
  readonly sets: string
  /** Returns the content of the field; without `as`, the field gets the option's value itself. */
  readonly as?: (value: Value) => unknown
}

export type FaultOptions = { readonly [Name in keyof OptionValues]?: OptionField<OptionValues[Name]> }

/** The formats of plans besides our own. */
export type ForeignFormat = 'mcp-chaos' | 'chaos-monkey'

/**
 * The only supported values, and why a fault cannot work with others; `{}` in the words is replaced by such a value.
 */
export interface Only<Value extends string> {
  readonly only: readonly Value[]
  readonly otherwise: string
}

/** A fault type: its registry entry says everything other parts need. */
export interface FaultType<Config> {
  /** Its own fields, each with a description; without the common fields. */
  readonly schema: Schema<Config>
  /** Its chapter in the catalogue. */
  readonly family: Family
  /** The effect of the fault, in one line. */
  readonly about: string
  /** The purpose of the fault: one sentence. */
  readonly use: string
  /** The agent's view of the fault with the default policies. */
  readonly seen: string
  /** The containing policies, by config name, and how; or another defence, or why nothing can contain the fault. */
  readonly containedBy: { readonly policies: readonly string[]; readonly how: string }
  /** Methods the fault can hit; default `tools/call`. */
  readonly methods?: readonly string[]
  readonly sides: readonly Side[]
  /** Transports of servers the fault works with (side upstream); default: all. */
  readonly transports?: Only<Transport>
  /** Eras of servers the fault works with (side upstream); default: all. */
  readonly eras?: Only<Era>
  /** The server that gets the calls in place of their own; default: none. */
  sendsTo?(config: Config): string | undefined
  /** Why the fault cannot work with such a server, beyond `transports` and `eras`; undefined when it can. */
  refuses?(kind: ServerKind): string | undefined
  /**
   * Whether a hit call runs at most once, and nobody is misled to repeat a call that has run. Such a fault answers in
   * place of the server, or sends the call late. With all other types, the answer may be lost or changed, or the call
   * repeated, once the call has run.
   */
  readonly runsAsAsked?: true
  /**
   * Whether a hit call never reaches the server. Such a fault hits calls of all tools without `allowWrites`, also tools
   * that write and tools in no list (possibly because of the fault itself).
   */
  readonly withholds?: true
  /** Whether the fault hits an undrawn call, because of its effect on an earlier call; default: no call. */
  catches?(call: Call, injections: Pick<Injection, 'memory'>): boolean
  /** The types of foreign plans that mean this type; default: none. */
  readonly aliases?: Readonly<Partial<Record<ForeignFormat, readonly string[]>>>
  /** Options of the command line that set a field of another name; an option with a field's name sets this field. */
  readonly options?: FaultOptions
  /** An entry of a plan without its `type`, as in `config/chaos.yaml`. */
  readonly example: Readonly<Record<string, unknown>> & { readonly name: string }
  /**
   * The fault itself: a layer around the rest of the call's way. It calls `next` when the server is to get the call,
   * and never throws because of the server.
   */
  layer(config: Config, injection: Injection): Layer
}

/** Returns why a fault of this type cannot work with such a server; undefined when it can. */
export function refusalOf(type: FaultType<unknown>, kind: ServerKind): string | undefined {
  const { transport, era } = kind
  const without = <Value extends string>(limit: Only<Value> | undefined, value: Value | undefined) =>
    limit === undefined || value === undefined || limit.only.includes(value)
      ? undefined
      : limit.otherwise.replaceAll('{}', value)
  return without(type.transports, transport) ?? without(type.eras, era) ?? type.refuses?.(kind)
}

/** Returns the `result` of an answered outcome that is no JSON-RPC error; undefined otherwise. */
export function resultIn(outcome: Outcome): Readonly<Record<string, unknown>> | undefined {
  if (outcome.kind !== 'answered') return undefined
  const { result } = outcome.result.value as { result?: unknown }
  return typeof result === 'object' && result !== null ? (result as Record<string, unknown>) : undefined
}
