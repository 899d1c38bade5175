import { createHash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Signal } from '../../mesh/cancel.ts'
import type { Clock } from '../../mesh/clock.ts'
import { DEFAULT_SET } from '../../mesh/settings.ts'
import { gauge } from '../../mesh/metric-spec.ts'
import type { PolicyContext, StateKind } from '../../mesh/policy.ts'
import { during } from '../../mesh/work.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { type Check, compileSchema } from './schemas/compile.ts'

const SCHEMAS = 'schemas'

const states = ['compiled', 'waiting', 'refused'] as const

export const schemaStates: StateKind<Schemas> = {
  kind: SCHEMAS,
  gauge: {
    metric: gauge(
      'schemas',
      'Distinct tool schemas, by whether they are compiled, waiting, or refused (a refused schema checks nothing).',
      ['state'],
      '3 states',
    ),
    always: states.map((state) => ({ state })),
    samples(schemas) {
      const counts = schemas.counts()
      return states.map((state) => ({ labels: { state }, value: counts[state] }))
    },
  },
}

/** The use of a schema: for a reply the first mismatch counts, for arguments up to three. */
type Use = 'reply' | 'arguments'

interface Compiled {
  state: 'waiting' | 'ready' | 'refused' | 'evicted'
  check: Check | undefined
  reason: string | undefined
  /** Finds equal schemas; empty while waiting. */
  hash: string
  readonly settled: (() => void)[]
}

/** Largest schema, in characters of JSON. */
const MAX_SCHEMA = 256 * 1024

/** Most schemas kept or waiting; beyond that, the least recently used are dropped. */
const MAX_SCHEMAS = 2_000

/** Time between two compilations, in milliseconds: each blocks the process, and calls have priority. */
const GAP_MS = 5

/**
 * Compiles schemas into check functions. The first request for a schema queues it. Until it is compiled there is no
 * check, and only calls that must be checked wait. Equal schemas are compiled once.
 */
export class Schemas {
  readonly #clock: Clock
  readonly #compile: typeof compileSchema
  readonly #known: Readonly<Record<Use, WeakMap<object, Compiled>>> = {
    reply: new WeakMap(),
    arguments: new WeakMap(),
  }
  readonly #byHash = new LRUCache<string, Compiled>({
    max: MAX_SCHEMAS,
    dispose(compiled, _, reason) {
      if (reason !== 'evict') return
      // A holder of the schema finds the check gone: the next request for the check compiles the schema again.
      compiled.state = 'evicted'
      compiled.check = undefined
    },
  })
  readonly #waiting: { readonly schema: Record<string, unknown>; readonly use: Use }[] = []

  constructor(clock: Clock, compile = compileSchema) {
    this.#clock = clock
    this.#compile = compile
  }

  /** Returns the check of a schema; undefined while not compiled, and for ever when compiling fails. */
  find(schema: unknown, use: Use): Check | undefined {
    if (!isObject(schema)) return undefined
    const compiled = this.#known[use].get(schema)
    if (compiled === undefined || compiled.state === 'evicted') this.#enqueue(schema, use)
    else this.#byHash.get(compiled.hash)
    return compiled?.check
  }

  /**
   * Resolves when a schema is compiled or refused, or `signal` aborts; undefined if known already, or without a schema.
   */
  settled(schema: unknown, use: Use, signal: Signal): Promise<void> | undefined {
    if (!isObject(schema)) return undefined
    this.find(schema, use)
    const compiled = this.#known[use].get(schema)
    if (compiled?.state !== 'waiting' || signal.aborted) return undefined
    return new Promise((resolve) => {
      signal.addEventListener('abort', resolve)
      compiled.settled.push(() => {
        signal.removeEventListener('abort', resolve)
        resolve()
      })
    })
  }

  /** Returns why nothing is checked with a schema; undefined while unknown, and when the schema is used. */
  refusal(schema: unknown, use: Use): string | undefined {
    return isObject(schema) ? this.#known[use].get(schema)?.reason : undefined
  }

  /** Returns how many schemas there are, and why some are not compiled: 12 digits of their hash, and a reason. */
  snapshot(): {
    readonly compiled: number
    readonly waiting: number
    readonly refused: readonly { schema: string; reason: string }[]
  } {
    const { refused, ...counts } = this.#states()
    return {
      ...counts,
      refused: refused.slice(-20).map(([hash, { reason = '' }]) => ({ schema: hash.slice(0, 12), reason })),
    }
  }

  counts(): Readonly<Record<'compiled' | 'waiting' | 'refused', number>> {
    const { refused, ...counts } = this.#states()
    return { ...counts, refused: refused.length }
  }

  #states() {
    const refused: [hash: string, compiled: Compiled][] = []
    this.#byHash.rforEach((compiled, hash) => {
      if (compiled.state === 'refused') refused.push([hash, compiled])
    })
    return { compiled: this.#byHash.size - refused.length, waiting: this.#waiting.length, refused }
  }

  #enqueue(schema: Record<string, unknown>, use: Use): void {
    if (this.#waiting.length >= MAX_SCHEMAS) return
    this.#known[use].set(schema, newCompiled())
    if (this.#waiting.push({ schema, use }) === 1) this.#clock.after(0, () => this.#next())
  }

  #next(): void {
    const { schema, use } = this.#waiting[0]!
    const before = this.#known[use].get(schema)
    const compiled = during('schema', () => this.#compiled(schema, use))
    this.#known[use].set(schema, compiled)
    this.#waiting.shift()
    for (const tell of before?.settled ?? []) tell()
    if (this.#waiting.length > 0) this.#clock.after(GAP_MS, () => this.#next())
  }

  #compiled(schema: Record<string, unknown>, use: Use): Compiled {
    const compiled = newCompiled()
    try {
      const text = JSON.stringify(schema)
      const hash = createHash('sha256').update(text).update(use).digest('hex')
      const before = this.#byHash.get(hash)
      if (before !== undefined) return before
      compiled.hash = hash
      if (text.length > MAX_SCHEMA) throw new Error(`larger than ${MAX_SCHEMA / 1024} KiB`)
      compiled.check = this.#compile(schema, use === 'arguments')
      compiled.state = 'ready'
    } catch (error) {
      compiled.state = 'refused'
      compiled.reason = String((error as Error).message).slice(0, 200)
    }
    this.#byHash.set(compiled.hash, compiled)
    return compiled
  }
}

const newCompiled = (): Compiled => ({
  state: 'waiting',
  check: undefined,
  reason: undefined,
  hash: '',
  settled: [],
})

/**
 * Returns the process's schemas. They belong to no server, so reloads keep them; only the first caller's `compile` is
 * used.
 */
export function sharedSchemas({ state, clock }: PolicyContext, compile = compileSchema): Schemas {
  return state.get({ kind: SCHEMAS, set: DEFAULT_SET, server: '' }, () => new Schemas(clock, compile))
}
