import type { KeyObject } from 'node:crypto'
import { isSignedWith, keyIdOf, readPublicKey, type Signature, type SignedKind } from './keys.ts'
import { digestOf } from './digest.ts'

export interface TrustedKey {
  readonly name: string
  /** Public key in base64url. */
  readonly key: string
}

export type Verified =
  | { readonly ok: true; readonly by: string; readonly keyId: string }
  | { readonly ok: false; readonly why: string }

/** The persons who may sign envelopes and approvals. Fixed when the gateway starts. */
export class Trust {
  readonly #keys = new Map<string, { readonly name: string; readonly key: KeyObject }>()
  /** SHA-256 of names and keys, in hex. The order of the list has no effect. Each run's record has the fingerprint. */
  readonly fingerprint: string

  /** Throws for a key that is no Ed25519 public key. The config's schema has checked the keys. */
  constructor(list: readonly TrustedKey[]) {
    for (const { name, key: text } of list) {
      const key = readPublicKey(text)
      if (key === undefined) throw new Error(`the trusted key of ${name} is no Ed25519 public key`)
      this.#keys.set(keyIdOf(text), { name, key })
    }
    const names = list.map(({ name, key }) => ({ name, key }))
    this.fingerprint = digestOf(names.sort((a, b) => (a.key < b.key ? -1 : 1)))
  }

  get size(): number {
    return this.#keys.size
  }

  /** Checks a signature. The signer's name comes from the trust list, never from the signature. */
  verify(kind: SignedKind, value: unknown, signature: Signature): Verified {
    const known = this.#keys.get(signature.keyId)
    if (known === undefined)
      return { ok: false, why: `the key ${signature.keyId} is not in gateway.controlMcp.trust` }
    if (signature.by !== known.name)
      return { ok: false, why: `the key ${signature.keyId} belongs to ${known.name}, not to ${signature.by}` }
    return isSignedWith(kind, value, signature, known.key)
      ? { ok: true, by: known.name, keyId: signature.keyId }
      : { ok: false, why: 'the signature does not fit the document: the document was changed after signing' }
  }
}
