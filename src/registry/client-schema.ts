import { Ajv } from 'ajv'
import formats, { type FormatsPlugin } from 'ajv-formats'
import { LRUCache } from 'lru-cache'
import { hash } from 'node:crypto'
import { inLegacyWords, isWider } from '../protocol/output-schema.ts'

/** Longest schema that is compiled, in characters: nothing else runs meanwhile. */
const MAX_SCHEMA = 16_384

/** Longest pattern, in characters: to make a regular expression of a longer one may take seconds. */
const MAX_PATTERN = 1_000

/** What the schemas of one list have in all, in characters, of which it is not known yet whether they compile. */
const MAX_NEW = 1_048_576

/** Schemas that one compiler is used for: it keeps something of each. */
const USES = 100

/** Whether schemas compile, by the hash of their text: lists are fetched again and again. */
const known = new LRUCache<string, boolean>({ max: 10_000 })

let compiler: Ajv | undefined
let used = 0

/** Checks the output schemas of one list as the clients of official SDKs do: one that does not compile, and they refuse the whole list. */
export class ClientSchemas {
  /** Goes down with each schema that is compiled. */
  left = MAX_NEW

  /** The member of a schema without which clients accept it: none, its `$id`, or all of it, which is the empty path. */
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

/** Whether a subschema has a name of its own: clients know all servers' schemas by one set of names, where those of two servers may collide. */
function hasId(node: unknown): boolean {
  if (typeof node !== 'object' || node === null) return false
  return ('$id' in node && typeof node.$id === 'string') || Object.values(node).some(hasId)
}

function compiles(schema: Readonly<Record<string, unknown>>): boolean {
  if (compiler === undefined || used++ % USES === 0) compiler = newCompiler()
  try {
    compiler.compile(schema)
    return true
  } catch {
    return false
  } finally {
    compiler.removeSchema(schema)
  }
}

/** One with the options of official SDKs, as far as they decide which schemas compile. */
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
