import { z } from 'zod'
import { isSignedWith, readPublicKey, signatureSchema } from '../approval/keys.ts'
import type { IndexCheck } from './read-index.ts'

/** A signed statement about an index at one moment: line `line` has the hash `hash`. */
export const anchorSchema = z.strictObject({
  format: z.literal(1),
  /** Lines of the index, the header included, and the hash of the last one. */
  line: z.int().min(1),
  hash: z.string().regex(/^[0-9a-f]{64}$/),
  runs: z.int().min(0),
  /** In ISO 8601. */
  at: z.iso.datetime(),
})

export type Anchor = z.output<typeof anchorSchema>

export const signedAnchorSchema = z.strictObject({ anchor: anchorSchema, signature: signatureSchema })
export type SignedAnchor = z.output<typeof signedAnchorSchema>

/** Returns the anchor of an index as it is; `now` in milliseconds since the epoch. */
export function anchorOf(
  { hashes, runs }: Pick<IndexCheck, 'hashes' | 'runs'>,
  now: number,
): Anchor | undefined {
  const hash = hashes.at(-1)
  if (hash === undefined) return undefined
  return { format: 1, line: hashes.length, hash, runs, at: new Date(now).toISOString() }
}

/**
 * Returns why an anchor does not prove the index; undefined when the anchor proves all lines up to its own. `trusted`:
 * public keys of persons by name. The chain commits each line to all lines before, so one hash proves them all, also
 * against somebody with the key of the state folder.
 */
export function unprovenBy(
  { anchor, signature }: SignedAnchor,
  { hashes }: Pick<IndexCheck, 'hashes'>,
  trusted: ReadonlyMap<string, string>,
): string | undefined {
  const publicText = trusted.get(signature.by)
  const key = publicText === undefined ? undefined : readPublicKey(publicText)
  if (key === undefined) return `the anchor is signed by ${signature.by}, whose key is not trusted`
  if (!isSignedWith('anchor', anchor, signature, key)) return `the signature of ${signature.by} is not valid`
  if (hashes.length < anchor.line)
    return `the anchor of ${anchor.at} knows ${anchor.line} lines, and the index has ${hashes.length}`
  if (hashes[anchor.line - 1] !== anchor.hash)
    return `a line before the anchor of ${anchor.at} was changed: line ${anchor.line} has another hash`
  return undefined
}
