import assert from 'node:assert/strict'
import { test } from 'node:test'
import { RetryBudget, type BudgetTerms } from '../../../src/policies/retry/tries.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const usual: BudgetTerms = { ratio: 0.2, floor: 5, window: 10_000, concurrency: 0.2, leastConcurrent: 3 }

function setUp(terms: Partial<BudgetTerms> = {}) {
  const clock = new ManualClock()
  const all = { ...usual, ...terms }
  const budget = new RetryBudget(clock, all)
  const enter = (calls: number) => {
    for (let i = 0; i < calls; i++) budget.enter(clock.now())
  }
  const withdraw = (retries: number) => {
    for (let i = 0; i < retries; i++) {
      budget.withdraw(clock.now())
      budget.start()
    }
  }
  const balance = () => budget.balance(all, clock.now())
  return { clock, budget, enter, withdraw, balance, hasRoom: () => budget.hasRoom(all) }
}

test('without any calls the floor is there, for the whole window', () => {
  const { balance, withdraw } = setUp()
  assert.equal(balance(), 50)
  withdraw(50)
  assert.equal(balance(), 0)
})

test('the floor counts within the share of the calls, not on top of it', () => {
  const { balance, enter } = setUp()
  enter(250)
  assert.equal(balance(), 50)
  enter(250)
  assert.equal(balance(), 100)
})

test('a share of a retry is no retry, and products that come out a hair too small lose none', () => {
  const { balance, enter } = setUp({ floor: 0, ratio: 0.29 })
  enter(99)
  assert.equal(balance(), 28)
  enter(1)
  assert.equal(balance(), 29)
})

test('deposits and withdrawals expire with their window', async () => {
  const { clock, balance, enter, withdraw } = setUp({ floor: 0 })
  enter(100)
  await clock.advance(5_000)
  enter(50)
  withdraw(10)
  assert.equal(balance(), 20)
  await clock.advance(4_999)
  assert.equal(balance(), 20)
  await clock.advance(1)
  assert.equal(balance(), 0)
  enter(50)
  assert.equal(balance(), 10)
  await clock.advance(5_000)
  assert.equal(balance(), 10)
  await clock.advance(5_000)
  assert.equal(balance(), 0)
})

test('after a pause of any length nothing is left of what was before', async () => {
  for (const pauseMs of [10_000, 60_000, 61_000, 3_600_000]) {
    const { clock, budget, balance, enter, withdraw } = setUp()
    enter(1_000)
    withdraw(60)
    await clock.advance(pauseMs)
    assert.equal(balance(), 50)
    assert.equal(budget.snapshot().deposits, 0)
  }
})

test('the longest window holds sixty seconds', async () => {
  const { clock, balance, enter } = setUp({ window: 60_000, floor: 0 })
  for (let second = 0; second < 60; second++) {
    enter(10)
    await clock.advance(1_000)
  }
  assert.equal(balance(), 118)
})

test('budgets with other terms share the same deposits', () => {
  const { clock, budget, enter } = setUp()
  enter(1_000)
  assert.equal(budget.balance({ ...usual, ratio: 0.5 }, clock.now()), 500)
  assert.equal(budget.balance({ ...usual, ratio: 0, floor: 1, window: 2_000 }, clock.now()), 2)
})

test('three retries may be under way, or a fifth of the calls that are', () => {
  const { budget, enter, withdraw, hasRoom } = setUp()
  enter(1)
  withdraw(2)
  assert.equal(hasRoom(), true)
  withdraw(1)
  assert.equal(hasRoom(), false)
  enter(18)
  assert.equal(hasRoom(), false)
  enter(1)
  assert.equal(hasRoom(), true)
  budget.leave()
  assert.equal(hasRoom(), false)
  budget.release()
  assert.equal(hasRoom(), true)
})

test('a snapshot holds plain numbers', () => {
  const { budget, enter, withdraw } = setUp()
  enter(500)
  withdraw(3)
  budget.leave()
  budget.release()
  assert.deepEqual(budget.snapshot(), {
    balance: 97,
    deposits: 500,
    withdrawals: 3,
    active: 499,
    retrying: 2,
  })
})
