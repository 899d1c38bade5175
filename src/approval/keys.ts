import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  sign as signBytes,
  verify as verifyBytes,
} from 'node:crypto'
import { z } from 'zod'
import { canonicalJson } from '../protocol/canonical-json.ts'

/**
 * Keys of persons: Ed25519 (RFC 8032). The private key is a PKCS#8 PEM file, encrypted with a passphrase. The public
 * key is written as 32 bytes in base64url, like `x` in a JSON Web Key (RFC 8037).
 */

/** Kinds of documents that a person signs. The signed bytes contain the kind, so a signature fits one kind only. */
export type SignedKind = 'envelope' | 'approval' | 'lift' | 'anchor' | 'evidence' | 'gameday'

/**
 * Minimum length of a passphrase, in characters. The key derivation of PKCS#8 in Node is fast, so an attacker could
 * guess a short passphrase.
 */
export const SHORTEST_PASSPHRASE = 12

const publicKeyPattern = /^[A-Za-z0-9_-]{43}$/

/** The schema of a public key, as `breakwater key new` prints the key. */
export const publicKeySchema = z
  .string()
  .regex(publicKeyPattern, 'expected a public key of 43 characters, from `breakwater key new`')
  .refine((text) => readPublicKey(text) !== undefined, 'expected an Ed25519 public key')

export const signatureSchema = z.strictObject({
  by: z.string().min(1).max(64).describe('Name of the signer, as in `gateway.controlMcp.trust`.'),
  keyId: z.string().regex(/^[0-9a-f]{16}$/, 'expected 16 hex digits'),
  value: z.string().regex(/^[A-Za-z0-9_-]{86}$/, 'expected an Ed25519 signature of 86 characters'),
})

export type Signature = z.output<typeof signatureSchema>

/** Reads a public key in base64url. Undefined: the text is no Ed25519 key. */
export function readPublicKey(text: string): KeyObject | undefined {
  if (!publicKeyPattern.test(text)) return undefined
  try {
    return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: text }, format: 'jwk' })
  } catch {
    return undefined
  }
}

/** Returns the public key of a private or public key, in base64url. */
export function publicTextOf(key: KeyObject): string {
  const { x } = (key.type === 'private' ? createPublicKey(key) : key).export({ format: 'jwk' })
  return x!
}

/** Returns the id of a public key: the first 16 hex digits of the SHA-256 of the key's bytes. */
export const keyIdOf = (publicText: string): string =>
  createHash('sha256').update(Buffer.from(publicText, 'base64url')).digest('hex').slice(0, 16)

/** Generates a key pair. `pem`: the private key, encrypted with AES-256-CBC under the passphrase. */
export function newKey(passphrase: string): { readonly pem: string; readonly publicText: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  const pem = privateKey.export({ type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase })
  return { pem: pem.toString(), publicText: publicTextOf(publicKey) }
}

/** Reads a private key in PEM. Undefined: the passphrase is wrong, or the text is no Ed25519 key. */
export function openPrivateKey(pem: string, passphrase: string): KeyObject | undefined {
  try {
    const key = createPrivateKey({ key: pem, format: 'pem', passphrase })
    return key.asymmetricKeyType === 'ed25519' ? key : undefined
  } catch {
    return undefined
  }
}

/** Returns the signed bytes of a document. Throws for a value that nests too deep for canonical JSON. */
function bytesOf(kind: SignedKind, value: unknown): Buffer {
  const text = canonicalJson(value)
  if (text === undefined) throw new Error('the document nests too deep to be signed')
  return Buffer.from(`breakwater-${kind}-v1\n${text}`)
}

/** Signs a document. `by` is the signer's name in the trust list of the gateway. */
export function sign(kind: SignedKind, value: unknown, key: KeyObject, by: string): Signature {
  const value64 = signBytes(null, bytesOf(kind, value), key).toString('base64url')
  return { by, keyId: keyIdOf(publicTextOf(key)), value: value64 }
}

/** Whether a signature was made for this document with this key. */
export const isSignedWith = (kind: SignedKind, value: unknown, { value: text }: Signature, key: KeyObject) =>
  verifyBytes(null, bytesOf(kind, value), key, Buffer.from(text, 'base64url'))
