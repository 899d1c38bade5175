import { z } from 'zod'
import { isRepeatable } from '../mesh/classify.ts'
import type { Answer, Call, Channel, Layer, Message, Outcome } from '../mesh/call.ts'
import type { Millis } from '../mesh/clock.ts'
import { gatewayError, type PolicyReason, type Reason, reasons } from '../mesh/errors.ts'
import { Fact } from '../mesh/record.ts'
import { counter } from '../mesh/metric-spec.ts'
import type { Policy, Scope } from '../mesh/policy.ts'
import { DEFAULT_SET } from '../mesh/settings.ts'
import { TimeLimit } from '../mesh/time-limit.ts'
import { errorText } from '../protocol/jsonrpc.ts'
import { metaOf } from '../protocol/meta.ts'
import { duration } from '../units/duration.ts'
import { size } from '../units/size.ts'
import { type Full, joined, runDetached, Runs, whileThere } from './idempotency/runs.ts'
import {
  type Begun,
  idempotencyConflict,
  keep,
  ofAnother,
  replay,
  replayed,
  type Share,
} from './idempotency/stored-outcome.ts'
import { isTask } from './state/final-result.ts'
import { argumentsOf, digestOf, hasOwnShare, identityOf, readerOf, type Sharing } from './state/sameness.ts'

const schema = z
  .strictObject({
    key: z
      .enum(['explicit', 'auto'])
      .default('explicit')
      .describe(
        'The tool calls with a key. `explicit`: calls that name a key in `_meta["dev.breakwater/idempotency-key"]`. `auto`: also all other calls that are not read-only; within `scope`, the same tool with the same arguments is the same call. Answers differ in shape between agents of 2026-07-28 and of older versions, and between plain calls and tasks. So an automatic key holds within one of these kinds, and a named key of one kind is refused in another.',
      ),
    scope: z
      .enum(['caller', 'tenant', 'server'])
      .default('tenant')
      .describe(
        "The callers among whom a key means the same call. `tenant`: one tenant (the header `x-breakwater-tenant`, or the client's name), so a client returning in a new session does not run a write twice. `caller`: one session; clients without sessions (protocol 2026-07-28) that describe themselves alike count as one. `server`: everybody who may call the server: anybody who knows a key, or with `auto` sends the same arguments, gets the answer. All of them separate agents by forwarded headers, so a header that changes with each request must not be forwarded. `Authorization` separates no calls: an agent refreshes its token, and a repeated write must not run again. The answer is for calls that name their tenant by the header, and for calls with the same `Authorization`; other calls learn that the call may have run. A token verifier in front of the gateway should therefore set the header. With `server` everybody gets the answer. A session ends with its token: with `caller` a call in the next session runs again. Agents that share a scope should choose unguessable keys, such as UUIDs.",
      ),
    window: duration({ min: 1_000 })
      .default(600_000)
      .describe("How long a key's answer is kept after the call ends."),
    limit: duration({ min: 1_000 })
      .default(300_000)
      .describe('How long a call with a key may run, whether or not its caller still waits.'),
    maxKeys: z
      .int()
      .min(1)
      .max(1_000_000)
      .default(10_000)
      .describe(
        'Most keys remembered per server, including running calls. No key is dropped before its window is over. A tenant may have as many keys as are still free: a single tenant stops at half, and a second tenant at half of the rest. A client without a tenant counts by its address, and all tenants of one address together stop at seven eighths. Beyond that, a call with a new key is refused and not run. The disk keeps at most 100,000 keys of all servers, in at most 128MiB, and no new keys beyond that.',
      ),
    maxSize: size()
      .default(16 * 1024 ** 2)
      .describe(
        'Most bytes of answers kept per server, on disk as well: the oldest are dropped first, and an answer over 1MiB is never kept. A write without its answer is still not run again.',
      ),
  })
  .describe(
    'Runs a tool call once per idempotency key, however often it is sent. Keys outlive reloads and, with `gateway.stateDir`, also the process, even if killed. A call under way at that time that must not run twice is not run again; its caller learns that the call may have run. Records reach the operating system before a call is sent, but are not forced to the disk: a power failure can lose the last records. A full or broken disk stops no call, only its record.',
  )

const idempotencyFull = {
  name: 'idempotency_full',
  code: 1503,
  retryable: true,
  about: 'There is no place for another idempotency key, so the call was not run.',
} as const satisfies PolicyReason

const placesTaken = new Fact<Full | undefined>(undefined, {
  about:
    'The call had a new idempotency key and was refused: the places of its tenant, of its client, or all were taken.',
  log: 'idempotencyFull',
  event: (full) => ({ decision: 'refused', reason: String(full) }),
  counting: {
    metric: counter(
      'idempotency_refused_total',
      'Calls refused and not run, without a place for a new idempotency key, by the limit met: of the tenant, of the client, or of all.',
      ['server', 'full', 'arm'],
      'servers × 3 × arms',
    ),
    labels: (full) => ({ full: String(full) }),
  },
})

/** After this long, in milliseconds, a new tenant name may have places of its own. */
const NEWCOMER_MS: Millis = 1_000

/**
 * Runs the first call with a key independently of its caller: most second calls follow a caller that gave up too early.
 * A second call during the first waits for the same outcome; a later call gets the outcome again. A failed call that
 * did not run, or may run twice, is forgotten. Where records outlive the process, a call that must not run twice is
 * recorded before sending. A later process then knows the call may have run.
 */
export const idempotency: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Keep it in force where agents send a key with their writes. Use `key: auto` for tools that must not run twice but whose agents send no key. Do not use `auto` for tools called with the same arguments on purpose, such as a counter.',
  reasons: [idempotencyConflict, idempotencyFull],
  facts: [replayed, placesTaken],
  build(config, { clock, state, durable }, scope): Layer {
    // All policy sets share a state: a write has run, whichever arm of an experiment repeats the call.
    const owner = { kind: 'idempotency', set: DEFAULT_SET, server: scope.server }
    const runs = state.get(owner, () => new Runs(clock, durable?.of(owner)))
    const limit = new TimeLimit(clock, config.limit)
    return (next) => {
      return (call) => {
        if (call.tool === undefined) return next(call)
        const key = keyOf(call, config, scope)
        if (key === undefined) return next(call)
        if (isInvalid(key)) return rejected('invalid_arguments', key.problem)
        const known = runs.find(key.id)
        if (known === undefined) return first(call, key)
        if (known.fingerprint !== key.fingerprint)
          return rejected(
            idempotencyConflict,
            'this idempotency key was used for another call (other arguments, task or not, or other protocol version); use a new key',
          )
        if (known.reader !== key.reader) return Promise.resolve(ofAnother())
        if (!('kept' in known)) return joined(call, known)
        const mayRunAgain = known.kept.kind === 'made_room' && isRepeatable(scope.effectOf(call))
        return mayRunAgain ? first(call, key) : replay(known.kept, call)
      }

      function first(call: Call, { id, fingerprint, reader }: Key): Promise<Outcome> {
        const { limit: limitMs, maxKeys, maxSize, window } = config
        if (call.signal.aborted) return next(call)
        const share = shareOf(call)
        const taken = runs.noPlace(share, maxKeys)
        if (taken !== undefined) {
          const { full, held } = taken
          placesTaken.note(call.record, full)
          const isNew = full === 'tenant' && !hasOwnShare(call)
          const retryAfterMs = Math.ceil(
            isNew ? Math.min(taken.retryAfterMs, NEWCOMER_MS) : taken.retryAfterMs,
          )
          const message = `no place for a new idempotency key, so the call was not run: ${isNew ? 'all new tenants together have' : holders[full]} ${held} of ${maxKeys} (maxKeys)`
          return rejected(idempotencyFull, message, retryAfterMs)
        }
        const begun: Begun = { fingerprint, reader, share }
        const channel = new LeavingChannel(call.channel)
        const run = () =>
          runDetached({ call, next, channel, limit, limitMs, clock }, (ended) => {
            const kept = keep(ended, scope.effectOf(call), maxSize)
            if (kept === undefined) runs.forget(id)
            else runs.finish(id, { ...begun, kept }, { ms: window, maxSize })
          })
        const noted = isRepeatable(scope.effectOf(call))
          ? undefined
          : runs.announce(id, begun, limitMs + window)
        // The run continues after its agent has left. The agent's request then no longer keeps the server open, so the
        // run does.
        const release = scope.hold()
        const outcome = noted === undefined ? run() : noted.then(run)
        outcome.then(release, release)
        runs.begin(id, { ...begun, outcome })
        return whileThere(call, outcome, () => channel.leave())
      }
    }
  },
}

const holders = {
  tenant: 'this tenant has',
  client: 'the tenants of this client have',
  all: 'all tenants together have',
} as const satisfies Record<Full, string>

/** Returns the share charged for a new key: its tenant and its client, or only the client if there is no tenant. */
function shareOf({ countsAs, caller }: Call): Share {
  const client = caller.client ?? ''
  return { tenant: countsAs === '' ? `client ${client}` : `tenant ${countsAs}`, client }
}

function rejected(reason: Reason | PolicyReason, message: string, retryAfterMs?: Millis): Promise<Outcome> {
  const error = gatewayError(reason, message, { retryAfterMs })
  return Promise.resolve({ kind: 'rejected', error, by: 'idempotency' })
}

/** The field in `params._meta` with the caller's key: a string of 1 to 256 characters. */
export const IDEMPOTENCY_KEY = 'dev.breakwater/idempotency-key'

const LONGEST = 256

export interface Key {
  /** Identifies the tool, the identity of the run, and the caller's key. */
  readonly id: string
  /** Identifies the work: a key stands for a single fingerprint. */
  readonly fingerprint: string
  /** Identifies who may get the answer: see `readerOf`. */
  readonly reader: string
}

export interface InvalidKey {
  readonly problem: string
}

function isInvalid(key: Key | InvalidKey): key is InvalidKey {
  return 'problem' in key
}

/** The settings of keys: which calls have a key, and among which callers a key counts. */
export interface KeySettings {
  readonly key: 'explicit' | 'auto'
  readonly scope: Sharing
}

/** Returns the key of a tool call; undefined for none. */
function keyOf(
  call: Call,
  { key: mode, scope: sharing }: KeySettings,
  scope: Pick<Scope, 'effectOf'>,
): Key | InvalidKey | undefined {
  const named = metaOf(call.message.value, 'params', IDEMPOTENCY_KEY)
  if (named === undefined) {
    // Read-only calls get no automatic key: sharing their answers would be a cache.
    if (mode === 'explicit' || scope.effectOf(call) === 'read_only') return undefined
    const fingerprint = fingerprintOf(call)
    return { id: idOf(call, sharing, 'auto', fingerprint), fingerprint, reader: readerOf(call, sharing) }
  }
  if (typeof named !== 'string' || named === '' || named.length > LONGEST)
    return { problem: `an idempotency key has to be a string of 1 to ${LONGEST} characters` }
  const id = idOf(call, sharing, 'explicit', named)
  return { id, fingerprint: fingerprintOf(call), reader: readerOf(call, sharing) }
}

/**
 * Returns the id of a key as a digest, because tool names may have any length, and keys and headers may be secrets.
 * Where agents choose their arm of an experiment, a call with a key runs separately in each named arm.
 */
function idOf(call: Call, sharing: Sharing, mode: string, key: string): string {
  const { arm, isArmAsked } = call.record
  const askedFor = isArmAsked ? arm : ''
  return digestOf(sharing, mode, call.tool ?? '', identityOf(call, sharing), askedFor, key)
}

/**
 * Returns a digest of a call's work. Includes the era and whether the call runs as a task, because their answers have
 * other shapes and cannot replace each other.
 */
function fingerprintOf(call: Call): string {
  return digestOf(argumentsOf(call), String(isTask(call)), call.caller.era)
}

/**
 * The channel of a caller until the caller leaves. Afterwards the channel drops messages and declines the server's
 * questions.
 */
class LeavingChannel implements Channel {
  #channel: Channel | undefined

  constructor(channel: Channel) {
    this.#channel = channel
  }

  open(): void {
    this.#channel?.open()
  }

  pause(retryMs: number, askNow?: () => void): void {
    this.#channel?.pause(retryMs, askNow)
  }

  send(message: Message, answer?: Answer): Promise<void> | undefined {
    if (this.#channel !== undefined) return this.#channel.send(message, answer)
    // Without an answer, the server would wait until the call's time is up.
    answer?.(errorText('', reasons.cancelled.code, 'the caller has gone')).catch(() => undefined)
    return undefined
  }

  leave(): void {
    this.#channel = undefined
  }
}
