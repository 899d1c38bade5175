import { Ajv } from 'ajv'
import formats, { type FormatsPlugin } from 'ajv-formats'
import { LRUCache } from 'lru-cache'
import { hash } from 'node:crypto'
import { inLegacyWords, isWider } from '../protocol/output-schema.ts'

/** Longest schema to compile, in characters: compiling blocks the event loop. */
const MAX_SCHEMA = 16_384

/** Longest pattern, in characters: compiling a longer pattern may take seconds. */
const MAX_PATTERN = 1_000

/** Most characters of new schemas compiled per list. */
const MAX_NEW = 1_048_576

/** Schemas per compiler, because a compiler keeps some memory for each schema. */
const USES = 100

/** Whether schemas compile, by the hash of their text. A cache, because lists are fetched repeatedly. */
const known = new LRUCache<string, boolean>({ max: 10_000 })

let compiler: Ajv | undefined
let used = 0

/** Compiles the output schemas of a list like official SDKs. SDKs refuse the whole list if any schema fails. */
export class ClientSchemas {
  /** Characters that may still be compiled. */
  left = MAX_NEW

  /** Returns the path to remove before clients accept the schema; `[]` removes all. Undefined for a good schema. */
  faultOf(schema: Readonly<Record<string, unknown>>): readonly string[] | undefined {
    const { $id: id, ...rest } = schema
    if (!this.#compiles(JSON.stringify(rest), rest)) return []
    return id === undefined ? undefined : ['$id']
  }

  #compiles(text: string, schema: Readonly<Record<string, unknown>>): boolean {
    if (text.length > MAX_SCHEMA) return false
    const key = hash('sha256', text, 'base64')
    let fits = known.get(key)
    if (fits !== undefined) return fits
    if (text.length > this.left) return false
    this.left -= text.length
    fits = !hasId(schema) && compiles(isWider(schema) ? inLegacyWords(schema) : schema)
    known.set(key, fits)
    return fits
  }
}

/** Whether a subschema has an `$id`. Clients share ids between all servers, so ids of two servers may collide. */
function hasId(node: unknown): boolean {
  if (typeof node !== 'object' || node === null) return false
  return ('$id' in node && typeof node.$id === 'string') || Object.values(node).some(hasId)
}

function compiles(schema: Readonly<Record<string, unknown>>): boolean {
  if (compiler === undefined || used++ % USES === 0) compiler = newCompiler()
  try {
    const validate = compiler.compile(schema)
    // Clients treat the promise of an asynchronous schema as success, and crash when the promise rejects.
    if ('$async' in validate) return false
    // A schema may refer to itself without end: the first object then exhausts the stack.
    validate({})
    return true
  } catch {
    return false
  } finally {
    compiler.removeSchema(schema)
  }
}

/** Returns a compiler with the options of official SDKs, as far as options decide whether a schema compiles. */
function newCompiler(): Ajv {
  const ajv = new Ajv({
    strict: false,
    validateSchema: false,
    allErrors: true,
    inlineRefs: false,
    logger: false,
    code: { regExp: boundedRegExp, optimize: false },
  })
  const addFormats = formats as unknown as FormatsPlugin
  addFormats(ajv)
  return ajv
}

const boundedRegExp = Object.assign(
  (pattern: string, flags: string): RegExp => {
    if (pattern.length > MAX_PATTERN) throw new RangeError('the pattern is too long')
    return new RegExp(pattern, flags)
  },
  { code: 'boundedRegExp' },
)
