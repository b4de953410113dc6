//! Rates under a paused clock: truthful waits, levels, and slots that come back.

use std::time::Duration;

use uuid::Uuid;

use super::super::slots::Slots;
use super::{Figures, Level, Limited, RateHeaders, Rates, Refusal, Subject};
use crate::config::{LimitOverride, RateLimitConfig};

fn subject() -> Subject {
    Subject {
        token: Uuid::new_v4(),
        agent: Uuid::new_v4(),
        org: Uuid::new_v4(),
    }
}

fn figures(edit: impl FnOnce(&mut RateLimitConfig)) -> Figures {
    let mut config = RateLimitConfig {
        default_rpm: 1_000,
        default_streams: None,
        ..RateLimitConfig::default()
    };
    edit(&mut config);
    Figures::new(&config)
}

fn limited(refusal: Refusal) -> Limited {
    match refusal {
        Refusal::Limited(limited) => limited,
        Refusal::Unavailable => panic!("nobody else is asked"),
    }
}

async fn request(rates: &Rates, who: &Subject) -> Result<RateHeaders, Limited> {
    rates.request(who).await.map_err(limited)
}

async fn tokens(rates: &Rates, who: &Subject, tokens: u32) -> Result<Option<RateHeaders>, Limited> {
    let slots = Slots::new(figures(|_| {}));
    let taken = rates.take(&slots, who, tokens, false).await;
    taken.map(|taken| taken.tokens).map_err(limited)
}

#[tokio::test(start_paused = true)]
async fn a_call_after_retry_after_passes_and_one_before_does_not() {
    let rates = Rates::new(figures(|c| c.token.rpm = Some(2)));
    let who = subject();
    assert_eq!(request(&rates, &who).await.map(|h| h.remaining), Ok(1));
    assert_eq!(request(&rates, &who).await.map(|h| h.remaining), Ok(0));
    let refused = request(&rates, &who)
        .await
        .expect_err("the third is over the limit");
    assert_eq!(
        (refused.level, refused.limit, refused.retry_after()),
        (Level::Token, 2, Some(30))
    );
    tokio::time::advance(Duration::from_secs(29)).await;
    assert!(request(&rates, &who).await.is_err());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(request(&rates, &who).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_at_the_narrow_level_costs_the_wide_one_nothing() {
    let rates = Rates::new(figures(|c| {
        c.token.rpm = Some(1);
        c.org.rpm = Some(3);
    }));
    let noisy = subject();
    for _ in 0..10 {
        let _spent = request(&rates, &noisy).await;
    }
    let quiet = Subject {
        token: Uuid::new_v4(),
        ..noisy
    };
    assert_eq!(
        request(&rates, &quiet).await.map(|h| h.remaining),
        Ok(0),
        "the token's own limit of 1 is the tightest"
    );
    let third = Subject {
        token: Uuid::new_v4(),
        ..noisy
    };
    assert!(
        request(&rates, &third).await.is_ok(),
        "the organisation has only been charged twice"
    );
}

/// A wide level refuses after the narrow ones have counted: the wait covers them too.
#[tokio::test(start_paused = true)]
async fn the_wait_of_a_wide_level_covers_the_narrow_ones_that_were_charged() {
    let rates = Rates::new(figures(|c| {
        c.token.rpm = Some(1);
        c.org.rpm = Some(60);
        c.default_tpm = Some(1_000);
        c.token.tpm = Some(10);
        c.org.tpm = Some(60);
    }));
    let busy = subject();
    for _ in 0..60 {
        let one = Subject {
            token: Uuid::new_v4(),
            ..busy
        };
        assert!(request(&rates, &one).await.is_ok());
        assert!(tokens(&rates, &one, 1).await.is_ok());
    }
    let who = Subject {
        token: Uuid::new_v4(),
        ..busy
    };
    let refused = request(&rates, &who)
        .await
        .expect_err("the organisation is spent");
    assert_eq!((refused.level, refused.limit), (Level::Org, 60));
    let wait = refused.retry_after().expect("a wait");
    assert_eq!(
        wait, 60,
        "the token's own minute, not the second of the organisation"
    );
    let refused = tokens(&rates, &who, 8)
        .await
        .expect_err("the organisation is spent");
    assert_eq!(
        (refused.level, refused.retry_after()),
        (Level::Org, Some(36)),
        "two are left of the token's ten, and six more take 36 seconds"
    );
    tokio::time::advance(Duration::from_secs(36)).await;
    assert!(tokens(&rates, &who, 8).await.is_ok());
    tokio::time::advance(Duration::from_secs(wait - 36)).await;
    assert!(request(&rates, &who).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_identifier_may_have_a_figure_of_its_own() {
    let who = subject();
    let rates = Rates::new(figures(|c| {
        c.ids.insert(
            who.org.to_string(),
            LimitOverride {
                rpm: Some(1),
                ..LimitOverride::default()
            },
        );
    }));
    assert!(request(&rates, &who).await.is_ok());
    assert_eq!(
        request(&rates, &who).await.map_err(|l| l.level),
        Err(Level::Org)
    );
    assert!(request(&rates, &subject()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_request_larger_than_the_whole_allowance_is_told_so() {
    let rates = Rates::new(figures(|c| c.default_tpm = Some(100)));
    let who = subject();
    assert_eq!(
        tokens(&rates, &who, 101).await.map_err(|l| l.wait),
        Err(None)
    );
    assert!(tokens(&rates, &who, 100).await.is_ok());
    let refused = tokens(&rates, &who, 50)
        .await
        .expect_err("the minute is spent");
    assert_eq!(refused.retry_after(), Some(30));
}

#[tokio::test(start_paused = true)]
async fn slots_come_back_on_every_way_out() {
    let slots = Slots::new(figures(|c| {
        c.token.streams = Some(2);
        c.org.streams = Some(3);
    }));
    let who = subject();
    for _ in 0..300 {
        let first = slots.take(&who).expect("free");
        let second = slots.take(&who).expect("free");
        assert_eq!(
            slots.take(&who).map_err(|l| l.level).err(),
            Some(Level::Token)
        );
        drop((first, second));
    }
    let other = Subject {
        token: Uuid::new_v4(),
        ..who
    };
    let _held = [slots.take(&who), slots.take(&who), slots.take(&other)].map(|s| s.expect("free"));
    assert_eq!(
        slots.take(&other).map_err(|l| l.level).err(),
        Some(Level::Org),
        "the token level's slot is given back"
    );
    drop(_held);
    assert_eq!(slots.taken(), 0);
}
