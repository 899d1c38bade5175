import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  isSignedWith,
  keyIdOf,
  newKey,
  openPrivateKey,
  readPublicKey,
  sign,
} from '../../src/approval/keys.ts'
import { Trust } from '../../src/approval/trust.ts'

const made = newKey('a long passphrase')
const key = openPrivateKey(made.pem, 'a long passphrase')!

test('a key opens with its passphrase only, and its file holds no private key in clear', () => {
  assert.equal(openPrivateKey(made.pem, 'another passphrase'), undefined)
  assert.equal(openPrivateKey('no key at all', 'a long passphrase'), undefined)
  assert.match(made.pem, /^-----BEGIN ENCRYPTED PRIVATE KEY-----/)
})

test('a signature fits its document in any order of keys, and no other document or kind', () => {
  const signature = sign('approval', { a: 1, b: { c: 2, d: 3 } }, key, 'alice')
  const publicKey = readPublicKey(made.publicText)!
  assert.equal(isSignedWith('approval', { b: { d: 3, c: 2 }, a: 1 }, signature, publicKey), true)
  assert.equal(isSignedWith('approval', { a: 1, b: { c: 2, d: 4 } }, signature, publicKey), false)
  assert.equal(isSignedWith('envelope', { a: 1, b: { c: 2, d: 3 } }, signature, publicKey), false)
})

test('trust takes the name of a signer from its list, and rejects a key under another name', () => {
  const trust = new Trust([{ name: 'alice', key: made.publicText }])
  assert.deepEqual(trust.verify('approval', { a: 1 }, sign('approval', { a: 1 }, key, 'alice')), {
    ok: true,
    by: 'alice',
    keyId: keyIdOf(made.publicText),
  })
  assert.equal(trust.verify('approval', { a: 1 }, sign('approval', { a: 1 }, key, 'bob')).ok, false)
  const stranger = newKey('a long passphrase')
  const foreign = sign('approval', { a: 1 }, openPrivateKey(stranger.pem, 'a long passphrase')!, 'alice')
  assert.equal(trust.verify('approval', { a: 1 }, foreign).ok, false)
})

test('the fingerprint of a trust list does not depend on its order, and changes with each key', () => {
  const other = newKey('a long passphrase').publicText
  const list = [
    { name: 'alice', key: made.publicText },
    { name: 'bob', key: other },
  ]
  assert.equal(new Trust(list).fingerprint, new Trust(list.toReversed()).fingerprint)
  assert.notEqual(new Trust(list).fingerprint, new Trust(list.slice(0, 1)).fingerprint)
})

test('a text that is no Ed25519 key is no public key', () => {
  for (const text of ['', 'short', 'A'.repeat(42), `${made.publicText}=`, '!'.repeat(43)])
    assert.equal(readPublicKey(text), undefined, text)
})
