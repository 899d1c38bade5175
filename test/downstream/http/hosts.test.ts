import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  allowsHost,
  allowsOrigin,
  hasToken,
  hostGuard,
  isCrossOrigin,
} from '../../../src/downstream/http/server.ts'

const loopbackNames = ['localhost', '127.0.0.1', '127.1.2.3', '[::1]', 'LOCALHOST', '127.1']

test('a gateway on a loopback address answers to loopback names, with any port', () => {
  for (const listen of ['127.0.0.1', '::1', 'localhost']) {
    for (const host of loopbackNames) {
      for (const port of ['', ':80', ':8080'])
        assert.ok(allowsHost(host + port, listen, []), `${host}${port} on ${listen}`)
    }
  }
})

test('a name that foreign DNS may point to this machine is refused, in any spelling', () => {
  for (const host of [
    'evil.com',
    'evil.com:8080',
    'localhost.evil.com',
    'evil-localhost',
    '127.0.0.1.nip.io',
    'localhost@evil.com',
    'localhost:80@evil.com',
    '0.0.0.0',
    '[::]',
    '[::ffff:127.0.0.1]',
    '192.168.0.1',
    'localhost.',
    '',
    ' ',
    'a b',
    ':8080',
    '[::1',
    'localhost:99999',
    'evil.com@127.0.0.1',
    '127.0.0.1/evil.com',
    'localhost#.evil.com',
    'localhost?',
    'localhost\\evil.com',
  ]) {
    assert.equal(allowsHost(host, '127.0.0.1', []), false, host)
    assert.equal(allowsHost(host, '127.0.0.1', ['gateway.example.com']), false, host)
  }
  assert.equal(allowsHost(undefined, '127.0.0.1', []), false)
})

test('names that the operator gives are allowed, with or without a port, in any case', () => {
  const allowed = ['Gateway.example.com', 'other.example.com:8443', '[fd00::1]', '10.0.0.1']
  for (const host of [
    'gateway.example.com',
    'GATEWAY.example.com:8080',
    'other.example.com:8443',
    '[fd00::1]:80',
    '10.0.0.1',
  ]) {
    assert.ok(allowsHost(host, '127.0.0.1', allowed), host)
  }
  for (const host of ['example.com', 'x.gateway.example.com', '[fd00::2]'])
    assert.equal(allowsHost(host, '0.0.0.0', allowed), false, host)
})

test('the address that the gateway listens on is an accepted name', () => {
  assert.ok(allowsHost('10.1.2.3:8080', '10.1.2.3', ['gateway.example.com']))
  assert.ok(allowsHost('[fd00::1]:8080', 'fd00::1', ['gateway.example.com']))
  assert.ok(allowsHost('[fd00::1]:8080', 'FD00:0:0::1', ['gateway.example.com']))
  assert.equal(allowsHost('10.1.2.4:8080', '10.1.2.3', ['gateway.example.com']), false)
})

test('behind a public address any name will do unless names were given', () => {
  for (const listen of ['0.0.0.0', '::', '10.1.2.3']) {
    assert.ok(allowsHost('gateway.internal', listen, []), listen)
    assert.equal(allowsHost('gateway.internal', listen, ['gateway.example.com']), false, listen)
    assert.ok(allowsHost('localhost', listen, ['gateway.example.com']), listen)
  }
})

test('a guard with a cache gives the same verdicts, also beyond the size of its cache', () => {
  const allows = hostGuard('127.0.0.1', ['gateway.example.com'])
  for (let round = 0; round < 2; round++) {
    for (let n = 0; n < 200; n++) assert.equal(allows(`evil${n}.com`), false)
    for (const host of ['localhost', 'gateway.example.com:1']) assert.equal(allows(host), true)
    assert.equal(allows(undefined), false)
  }
})

test('pages of this machine may call, pages of others only when they are named', () => {
  for (const origin of [
    undefined,
    'http://localhost',
    'http://localhost:3000',
    'https://127.0.0.1',
    'http://[::1]:8080',
  ]) {
    assert.ok(allowsOrigin(origin, []), origin)
  }
  for (const origin of [
    'https://evil.com',
    'null',
    '',
    'http://localhost.evil.com',
    'file://',
    'http://127.0.0.1.nip.io',
  ]) {
    assert.equal(allowsOrigin(origin, []), false, origin)
  }
  const allowed = ['https://App.example.com', 'vscode-webview://abc']
  for (const origin of ['https://app.example.com', 'vscode-webview://abc'])
    assert.ok(allowsOrigin(origin, allowed), origin)
  for (const origin of [
    'http://app.example.com',
    'https://app.example.com:8443',
    'https://x.app.example.com',
    'vscode-webview://abd',
  ]) {
    assert.equal(allowsOrigin(origin, allowed), false, origin)
  }
})

test('a browser that asks on behalf of another origin is told from everybody else', () => {
  const host = '127.0.0.1:8081'
  for (const headers of [
    { host },
    { host, origin: 'http://127.0.0.1:8081' },
    { host, origin: 'https://127.0.0.1:8081' },
    { host, 'sec-fetch-site': 'same-origin' },
    { host, 'sec-fetch-site': 'none' },
  ]) {
    assert.equal(isCrossOrigin(headers), false, JSON.stringify(headers))
  }
  for (const headers of [
    { host, origin: 'http://127.0.0.1:3000' },
    { host, origin: 'http://localhost:8081' },
    { host, origin: 'null' },
    { host, origin: '' },
    { origin: 'http://127.0.0.1:8081' },
    { host, 'sec-fetch-site': 'cross-site' },
    { host, 'sec-fetch-site': 'same-site' },
  ]) {
    assert.equal(isCrossOrigin(headers), true, JSON.stringify(headers))
  }
})

test('a token is accepted only as a whole', () => {
  const token = 'correct-horse-battery'
  for (const scheme of ['Bearer', 'bearer', 'BEARER']) assert.ok(hasToken(`${scheme} ${token}`, token))
  for (const header of [
    undefined,
    '',
    token,
    'Bearer',
    'Bearer ',
    `Bearer ${token}x`,
    `Bearer ${token.slice(1)}`,
    `Basic ${token}`,
  ]) {
    assert.equal(hasToken(header, token), false, header)
  }
})
